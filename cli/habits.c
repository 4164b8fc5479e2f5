/* A table of habits: see habits.h. */
#include "cli/habits.h"

#include "shared/base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct habit {
	const char *verbs; /* blank-separated; NULL: any */
	const char *words; /* blank-separated */
	const char *hint;
};

static const struct habit options[] = {
	{ NULL, "--workdir --working-dir", "the working directory is --cwd" },
	{ "cp", "-r -R -a --recursive --archive -p --preserve", "directories are copied whole, with modes and times, without it" },
	{ "cp", "-L --follow-link --dereference", "links are copied as links; name what they lead to, or end the path in /" },
	{ "cp", "-f --force", "files that are there are replaced without it" },
	{ "", "-v", "the version is -V or --version" },
	{ "run", "-d --detach", "a sandbox that stays is made by  sandbox create,  its commands run by  sandbox exec" },
	{ "create", "-d --detach", "a sandbox stays anyway until it is deleted or its time is over" },
	{ "shell", "-i -t -it -ti --interactive --tty", "a terminal is what it gives anyway" },
	{ "delete", "-f --force", "running sandboxes are deleted without it" },
	{ "top", "--no-stream", "it prints once where it does not write to a terminal" },
	{ "run", "--rm", "run always deletes its sandbox; create makes one that stays" },
	{ "run create", "-v --volume --mount", "nothing of this machine is mounted; see --upload and sandbox cp" },
	{ "run create", "-p --publish --expose", "a port is reached by  sandbox forward" },
	{ "run create exec", "--privileged --cap-add", "there are no privileged sandboxes; --writable-root lets root install packages" },
	{ "run create", "--restart", "a sandbox whose command ended stays until it is deleted or its time is over" },
	{ "run create", "-h --hostname --entrypoint", "give the command after --" },
	{ "ps", "-a --all", "all that are there are shown" },
	{ "extend", "-t --timeout --time", "the time is --ttl" },
	{ "logs", "--until", "output is shown to its end; pipe it through head" },
};

static const struct habit verbs[] = {
	{ "", "pull", "sandbox image pull" },
	{ "", "rmi", "sandbox image remove" },
	{ "", "build load", "make an image with your own tools, then  sandbox image import" },
	{ "", "stop terminate destroy down", "a sandbox is not stopped but deleted:  sandbox delete" },
	{ "", "start restart resume unpause", "there are no stopped sandboxes:  sandbox create  makes a new one" },
	{ "", "new launch up", "sandbox create" },
	{ "", "describe get show", "sandbox inspect, or  sandbox list" },
	{ "", "status info", "sandbox doctor  for this machine,  sandbox inspect  for a sandbox" },
	{ "", "port publish port-forward", "sandbox forward" },
	{ "", "connect enter bash sh attach-shell", "sandbox shell" },
	{ "", "copy-to push upload download get-file", "sandbox cp" },
	{ "", "tail", "sandbox logs -f" },
	{ "", "renew touch keepalive", "sandbox extend NAME --ttl 2h" },
	{ "", "system", "sandbox gc, or  sandbox doctor" },
	{ "image", "build", "make an image with your own tools, then  sandbox image import" },
	{ "image", "load", "sandbox image import" },
	{ "daemon", "reload", "sandbox daemon restart" },
};

static const struct habit words[] = {
	{ "create", "", "an image goes behind --image, a name behind --name" },
	{ "extend", "", "the time goes behind --ttl" },
	{ "delete", "", "name what to delete, or choose by -l LABEL" },
	{ "cp", "", "one FROM and one TO; several files go as a directory, or by tar with -" },
	{ "login", "", "the token is read from standard input" },
};

/* Where the first word is missing, or the command. */
static const struct habit missing[] = {
	{ "ps", "SANDBOX", "sandboxes are listed by  sandbox list" },
	{ "exec", "COMMAND", "a terminal is opened by  sandbox shell" },
	{ "wait", "OPERATION", "create waits by itself, and  create --no-wait  prints one" },
	{ "kill attach", "OPERATION", "sandbox operation list  shows them" },
};

/* Whether a blank-separated list holds a word. */
static bool holds(const char *list, const char *word)
{
	size_t n = strlen(word);
	for (const char *p = list; n > 0 && (p = strstr(p, word)) != NULL; p += n)
		if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
			return true;
	return strcmp(list, word) == 0;
}

static const char *find(const struct habit *table, size_t n, const char *verb, const char *word)
{
	for (size_t i = 0; i < n; i++)
		if ((!table[i].verbs || holds(table[i].verbs, verb)) && holds(table[i].words, word))
			return table[i].hint;
	return NULL;
}

const char *habit_of_option(const char *verb, const char *option)
{
	return find(options, ARRAY_LEN(options), verb, option);
}

const char *habit_of_verb(const char *parent, const char *word)
{
	return find(verbs, ARRAY_LEN(verbs), parent, word);
}

const char *habit_of_missing(const char *verb, const char *what)
{
	return find(missing, ARRAY_LEN(missing), verb, what);
}

const char *habit_of_word(const char *verb)
{
	return find(words, ARRAY_LEN(words), verb, "");
}
