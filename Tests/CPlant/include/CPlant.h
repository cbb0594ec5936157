// A bug planted in the JPEG library: see plant.c.
#ifndef CPLANT_H
#define CPLANT_H

/// A JPEG of this width ends the process that reads its header as a wild pointer would.
#define PLANTED_CRASH_WIDTH 13

/// A JPEG of this width is read for ever.
#define PLANTED_HANG_WIDTH 17

/// Has the bug take effect. Tests that only start the program are linked with this, too.
void CPlant_arm(void);

#endif
