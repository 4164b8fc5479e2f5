/* Functions that are never right here: their use is a compile error. Included before everything by the Makefile. */
#ifndef SANDBOX_BASE_BANNED_H
#define SANDBOX_BASE_BANNED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BANNED(f) f##_is_banned_use_something_bounded
#undef strcpy
#define strcpy(a, b) BANNED(strcpy)
#undef strcat
#define strcat(a, b) BANNED(strcat)
#undef strncpy
#define strncpy(a, b, c) BANNED(strncpy)
#undef strncat
#define strncat(a, b, c) BANNED(strncat)
#undef sprintf
#define sprintf(...) BANNED(sprintf)
#undef vsprintf
#define vsprintf(...) BANNED(vsprintf)
#undef strtok
#define strtok(a, b) BANNED(strtok)
#undef atoi
#define atoi(a) BANNED(atoi)
#undef atol
#define atol(a) BANNED(atol)
#undef gets
#define gets(a) BANNED(gets)
#undef system
#define system(a) BANNED(system)
#undef mktemp
#define mktemp(a) BANNED(mktemp)

#endif
