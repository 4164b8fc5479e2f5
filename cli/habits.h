/* What people type who know docker, kubectl or ssh, and what it is called here. For hints: nothing here is accepted. */
#ifndef SANDBOX_CLI_HABITS_H
#define SANDBOX_CLI_HABITS_H

/* The way out for an option that a verb does not have ("-v", "--volume"), a command that does not exist, a word too many after a verb, or
 * what
 * is missing before a verb can do anything ("SANDBOX"); NULL when there is nothing to say. */
const char *habit_of_option(const char *verb, const char *option);
const char *habit_of_verb(const char *parent, const char *word);
const char *habit_of_word(const char *verb);
const char *habit_of_missing(const char *verb, const char *what);

#endif
