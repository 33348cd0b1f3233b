/* signals.c - handlers for the signals that end the command, and for SIGBUS on a mapped file that
 * was truncated. */
#include "signals.h"

#include "fault.h"
#include "utf8.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { WATCHES = 32, NAME_SIZE = 256 };

static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};

typedef struct watch {
  volatile uintptr_t base;
  volatile size_t size;
  char name[NAME_SIZE];
} watch;

static watch watches[WATCHES];
static const char *volatile temporary;

static void remove_temporary(void) {
  const char *path = temporary;
  if (path) unlink(path);
}

static void on_ending(int number) {
  remove_temporary();
  signal(number, SIG_DFL);
  raise(number);
}

static void say(const char *text) {
  if (write(STDERR_FILENO, text, strlen(text)) < 0) return;
}

static void on_bus_error(int number, siginfo_t *info, void *context) {
  uintptr_t address = (uintptr_t)info->si_addr;
  for (int i = 0; i < WATCHES; i++) {
    if (address < watches[i].base || address - watches[i].base >= watches[i].size) continue;
    remove_temporary();
    say("softmax: ");
    say(watches[i].name);
    say(": the file was truncated while it was being read\n");
    _exit(EXIT_UNREADABLE);
  }
  remove_temporary();
  signal(number, SIG_DFL);
}

static void ending_set(sigset_t *set) {
  sigemptyset(set);
  for (size_t i = 0; i < sizeof ending / sizeof *ending; i++) sigaddset(set, ending[i]);
}

void signals_install(void) {
  struct sigaction action, old;
  memset(&action, 0, sizeof action);
  ending_set(&action.sa_mask);
  action.sa_handler = on_ending;
  for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
    if (sigaction(ending[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
      sigaction(ending[i], &action, NULL);
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = on_bus_error;
  sigaction(SIGBUS, &action, NULL);
  signal(SIGXFSZ, SIG_IGN); /* write then says EFBIG */
}

void signals_hold(sigset_t *old) {
  sigset_t set;
  ending_set(&set);
  sigprocmask(SIG_BLOCK, &set, old);
}

void signals_release(const sigset_t *old) { sigprocmask(SIG_SETMASK, old, NULL); }

void signals_set_temporary(const char *path) { temporary = path; }

void signals_watch(const void *base, size_t size, const char *name) {
  for (int i = 0; i < WATCHES; i++) {
    if (watches[i].size) continue;
    snprintf(watches[i].name, NAME_SIZE, "%s", name);
    utf8_tame(watches[i].name);
    watches[i].base = (uintptr_t)base;
    watches[i].size = size;
    return;
  }
}

void signals_unwatch(const void *base) {
  for (int i = 0; i < WATCHES; i++)
    if (watches[i].base == (uintptr_t)base) watches[i].size = 0;
}
