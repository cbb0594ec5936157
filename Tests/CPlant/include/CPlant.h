// A bug planted in the JPEG library: see plant.c.
#ifndef CPLANT_H
#define CPLANT_H

/// Reading the header of a JPEG with this width crashes the process by an invalid pointer.
#define PLANTED_CRASH_WIDTH 13

/// Reading the header of a JPEG with this width never ends.
#define PLANTED_HANG_WIDTH 17

/// Enables the bug. Tests that only start the program are linked with this module too.
void CPlant_arm(void);

#endif
