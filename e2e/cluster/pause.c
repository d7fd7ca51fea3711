/* The container that holds a pod's namespaces open: it waits for its end and
 * reaps what is orphaned to it. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void End(int signal_number) {
  (void)signal_number;
  _exit(0);
}

static void Reap(int signal_number) {
  (void)signal_number;
  while (waitpid(-1, 0, WNOHANG) > 0) {
  }
}

int main(void) {
  signal(SIGTERM, End);
  signal(SIGINT, End);
  signal(SIGCHLD, Reap);
  for (;;) pause();
}
