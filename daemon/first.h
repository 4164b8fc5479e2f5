/* `sandboxd init`: a first configuration, with the secrets it needs. */
#ifndef SANDBOX_DAEMON_FIRST_H
#define SANDBOX_DAEMON_FIRST_H

/* argv[0] is "init". The process's exit status. */
int first_main(int argc, char **argv);

#endif
