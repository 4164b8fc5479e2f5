/* Clocks and RFC 3339 text: see clock.h. Civil dates are computed here: libc's depend on the time zone and on 64-bit tm fields. */
#include "shared/base/clock.h"

#include <stdbool.h>
#include <stdio.h>
#include <time.h>

enum { SECONDS_PER_DAY = 86400, DAYS_PER_ERA = 146097 };

static const int64_t US_PER_SECOND = 1000000;
/* 0001-01-01T00:00:00Z and the last microsecond of 9999, the range of the text form. */
static const int64_t TIME_MIN_US = -62135596800LL * 1000000;
static const int64_t TIME_MAX_US = 253402300799LL * 1000000 + 999999;

static int64_t now_us(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * US_PER_SECOND + t.tv_nsec / 1000;
}

int64_t clock_mono_us(void)
{
	return now_us(CLOCK_MONOTONIC);
}

int64_t clock_mono_ms(void)
{
	return clock_mono_us() / 1000;
}

int64_t clock_wall_us(void)
{
	return now_us(CLOCK_REALTIME);
}

/* Days since 1970-01-01 of a proleptic Gregorian date; years begin in March so that the leap day comes last. */
static int64_t days_from_civil(int64_t year, int month, int day)
{
	year -= month <= 2;
	int64_t era = (year >= 0 ? year : year - 399) / 400;
	int64_t year_of_era = year - era * 400;
	int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
	int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
	return era * DAYS_PER_ERA + day_of_era - 719468;
}

static void civil_from_days(int64_t days, int *year, int *month, int *day)
{
	days += 719468;
	int64_t era = (days >= 0 ? days : days - (DAYS_PER_ERA - 1)) / DAYS_PER_ERA;
	int64_t doe = days - era * DAYS_PER_ERA;
	int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
	int64_t shifted = (5 * doy + 2) / 153;
	*day = (int)(doy - (153 * shifted + 2) / 5 + 1);
	*month = (int)(shifted < 10 ? shifted + 3 : shifted - 9);
	*year = (int)(yoe + era * 400 + (*month <= 2));
}

char *time_rfc3339(int64_t us, char out[static RFC3339_MAX])
{
	if (us < TIME_MIN_US)
		us = TIME_MIN_US;
	if (us > TIME_MAX_US)
		us = TIME_MAX_US;
	int64_t seconds = us / US_PER_SECOND, fraction = us % US_PER_SECOND;
	if (fraction < 0) {
		fraction += US_PER_SECOND;
		seconds--;
	}
	int64_t days = seconds / SECONDS_PER_DAY, rest = seconds % SECONDS_PER_DAY;
	if (rest < 0) {
		rest += SECONDS_PER_DAY;
		days--;
	}
	int year, month, day;
	civil_from_days(days, &year, &month, &day);
	snprintf(out, RFC3339_MAX, "%04u-%02u-%02uT%02u:%02u:%02u.%06uZ", (unsigned)year % 10000, (unsigned)month % 100,
		 (unsigned)day % 100, (unsigned)(rest / 3600) % 100, (unsigned)(rest / 60 % 60), (unsigned)(rest % 60),
		 (unsigned)fraction % 1000000);
	return out;
}

/* Exactly n digits at *p, advancing it; -1 otherwise. */
static int digits(const char **p, int n)
{
	int value = 0;
	for (int i = 0; i < n; i++, (*p)++) {
		if (**p < '0' || **p > '9')
			return -1;
		value = value * 10 + (**p - '0');
	}
	return value;
}

static bool skip(const char **p, char c)
{
	if (**p != c)
		return false;
	(*p)++;
	return true;
}

static int month_days(int year, int month)
{
	static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
	return month == 2 && leap ? 29 : days[month - 1];
}

/* Whole days since the epoch of "YYYY-MM-DD" at *p, or -1 with *ret untouched. */
static int parse_date(const char **p, int64_t *ret)
{
	int year = digits(p, 4);
	if (year < 1 || !skip(p, '-'))
		return -1;
	int month = digits(p, 2);
	if (month < 1 || month > 12 || !skip(p, '-'))
		return -1;
	int day = digits(p, 2);
	if (day < 1 || day > month_days(year, month))
		return -1;
	*ret = days_from_civil(year, month, day);
	return 0;
}

/* "HH:MM:SS"; second 60 is a leap second and becomes the first of the next minute. */
static int parse_clock(const char **p, int64_t *ret_seconds)
{
	int hour = digits(p, 2);
	if (hour < 0 || hour > 23 || !skip(p, ':'))
		return -1;
	int minute = digits(p, 2);
	if (minute < 0 || minute > 59 || !skip(p, ':'))
		return -1;
	int second = digits(p, 2);
	if (second < 0 || second > 60)
		return -1;
	*ret_seconds = hour * 3600 + minute * 60 + second;
	return 0;
}

static int parse_fraction(const char **p, int64_t *ret_us)
{
	int64_t us = 0;
	int n = 0;
	if (skip(p, '.')) {
		for (; **p >= '0' && **p <= '9'; n++, (*p)++) {
			if (n >= 9)
				return -1;
			if (n < 6)
				us = us * 10 + (**p - '0');
		}
		if (n == 0)
			return -1;
		for (int i = n; i < 6; i++)
			us *= 10;
	}
	*ret_us = us;
	return 0;
}

static int parse_offset(const char **p, int64_t *ret_seconds)
{
	if (skip(p, 'Z') || skip(p, 'z')) {
		*ret_seconds = 0;
		return 0;
	}
	int sign = skip(p, '+') ? 1 : skip(p, '-') ? -1 : 0;
	int hour = sign ? digits(p, 2) : -1;
	if (hour < 0 || hour > 23 || !skip(p, ':'))
		return -1;
	int minute = digits(p, 2);
	if (minute < 0 || minute > 59)
		return -1;
	*ret_seconds = sign * (hour * 3600 + minute * 60);
	return 0;
}

int time_parse_rfc3339(const char *text, int64_t *ret_us)
{
	const char *p = text;
	int64_t days, seconds, us, offset;
	if (!text || parse_date(&p, &days) != 0 || !(skip(&p, 'T') || skip(&p, 't')))
		return -1;
	if (parse_clock(&p, &seconds) != 0 || parse_fraction(&p, &us) != 0 || parse_offset(&p, &offset) != 0 || *p)
		return -1;
	*ret_us = (days * SECONDS_PER_DAY + seconds - offset) * US_PER_SECOND + us;
	return 0;
}
