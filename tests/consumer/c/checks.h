/* Defines what the program's parts share: checks that count, and problems from their texts. */
#ifndef CONSUMER_CHECKS_H
#define CONSUMER_CHECKS_H

#include <convtune/c.h>
#include <stdio.h>
#include <string.h>

extern int failures; /* for all checks so far */

/* The sanitizers' operator new ends the process where there is no memory. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { kSanitized = 1 };
#else
enum { kSanitized = 0 };
#endif

#define CHECK(condition)                                                                \
  do {                                                                                  \
    if (!(condition)) {                                                                 \
      ++failures;                                                                       \
      printf("%s:%d: %s; %s\n", __FILE__, __LINE__, #condition, convtune_error_text()); \
    }                                                                                   \
  } while (0)

/* The call returns `status`, and the text of this thread then holds `words`. */
#define SAYS(status, words, call)                                                      \
  do {                                                                                 \
    const convtune_status got = (call);                                                \
    if (got != (status) || !strstr(convtune_error_text(), (words))) {                  \
      ++failures;                                                                      \
      printf("%s:%d: %s is %d: %s; expected %d: %s\n", __FILE__, __LINE__, #call, got, \
             convtune_error_text(), status, words);                                    \
    }                                                                                  \
  } while (0)
#define REFUSED(words, call) SAYS(CONVTUNE_INVALID_ARGUMENT, words, call)

convtune_problem parsed(const char* text);
/* All of it is on one line: the text holds `words`, and is given back. */
int holds(convtune_text* text, const char* words);

/* The program's parts, each with its own failures counted. */
void problems(void); /* problems.c: texts, sizes, and structs of every version */
void runs(void);     /* runs.c: plans, packed weights, and every direction */
void searches(void); /* searches.c: searches, benchmarks and contests */

#endif
