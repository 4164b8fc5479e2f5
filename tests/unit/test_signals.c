/* A signal that comes between two ways of waiting for one is not lost. */
#include "cli/interrupt.h"
#include "cli/signals.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void one_that_came_before_is_taken_first(void **state)
{
	(void)state;
	assert_int_equal(interrupt_watch(), 0);
	raise(SIGHUP);
	assert_int_equal(interrupt_signal(), SIGHUP);
	signals_begin();
	raise(SIGUSR1); /* blocked until a poll */
	assert_int_equal(signals_take(), SIGHUP);
	assert_int_equal(signals_take(), 0);
	assert_int_equal(signals_poll(NULL, 0, 0), -1);
	assert_int_equal(signals_take(), SIGUSR1);
	signals_end();
	interrupt_clear();
}

static void without_one_there_is_none(void **state)
{
	(void)state;
	assert_int_equal(interrupt_signal(), 0);
	signals_begin();
	assert_int_equal(signals_take(), 0);
	assert_int_equal(signals_poll(NULL, 0, 0), 0);
	signals_end();
}

/* What was recorded and not taken is the waiting's that follows. */
static void one_that_is_left_goes_back(void **state)
{
	(void)state;
	signals_begin();
	raise(SIGTERM);
	assert_int_equal(signals_poll(NULL, 0, 0), -1);
	signals_end();
	assert_int_equal(interrupt_signal(), SIGTERM);
	interrupt_clear();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_that_came_before_is_taken_first),
		cmocka_unit_test(without_one_there_is_none),
		cmocka_unit_test(one_that_is_left_goes_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
