/* What the headers call: each command is recorded, and the machine runs what is recorded at a fence. */
#ifndef TILEWRIGHT_GEMMINI_H
#define TILEWRIGHT_GEMMINI_H

#include <stdint.h>

/* Record a command, at a place in the source. */
void tw_gemmini_command(unsigned funct, uint64_t rs1, uint64_t rs2, const char *file, int line);

/* Between these calls, commands have the place of the first one: the line that called a function of many commands. */
void tw_gemmini_enter(const char *file, int line);
void tw_gemmini_leave(void);

/* Run all commands, and let the machine's results appear in memory. */
void tw_gemmini_fence(const char *file, int line);

/* The machine's cycles: until the last fence found it idle, or until it had accepted the last command. */
uint64_t tw_gemmini_cycles(void);

/* End the program with a message. */
void tw_gemmini_refuse(const char *file, int line, const char *reason) __attribute__((noreturn));

#endif
