/* A stranger's program in C: a convolution from its text to its output, a search that is stopped, and every
 * way in which the C face says no. */
#include "checks.h"

int failures = 0;

convtune_problem parsed(const char* text) {
  convtune_problem problem = CONVTUNE_PROBLEM_INIT;
  CHECK(convtune_problem_parse(text, &problem) == CONVTUNE_OK);
  return problem;
}

int holds(convtune_text* text, const char* words) {
  const int found = text->data && strlen(text->data) == text->size && strstr(text->data, words);
  if (!found) printf("'%s' is not in %s\n", words, text->data ? text->data : "nothing");
  convtune_text_free(text);
  return found && !text->data && text->size == 0;
}

int main(void) {
  CHECK(*convtune_error_text() == 0); /* nothing has failed yet, and it is not null */
  CHECK(convtune_set_cpu_threads(2) == CONVTUNE_OK);
  problems();
  runs();
  searches();
  printf("%d failures\n", failures);
  return failures != 0;
}
