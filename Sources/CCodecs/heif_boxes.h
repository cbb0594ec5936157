// The boxes of a HEIF file (ISO/IEC 14496-12 and 23008-12): where its pictures are, and how they are shown.
//
// Nothing is allocated, and nothing is copied: a question is answered by a look through the box that has the answer, each of
// which is bounded. All that is told was checked against the box that it is in; places in the file were not, as not all of
// it is there yet.
#ifndef HEIF_BOXES_H
#define HEIF_BOXES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"

#define HEIF_TYPE(a, b, c, d) ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))
/// Of the box that tells of pictures; it may have a colour profile in it.
#define HEIF_MAX_BOX ((uint64_t)8 * 1024 * 1024)

/// Bytes of the file, from its start.
typedef struct {
    uint64_t at, count;
} HEIFPart;

/// A look through bytes. What is read beyond them is 0, and `is_short` from then on.
typedef struct {
    const uint8_t *at, *end;
    bool is_short;
} HEIFCursor;

typedef struct {
    uint32_t type;
    HEIFPart content;
} HEIFBox;

typedef struct {
    /// As many as there are of the file, set by the owner whenever there are more.
    const uint8_t *bytes;
    size_t count;
    /// How far boxes were passed, and how many bytes make another look worth while.
    uint64_t passed, retry_at;
    bool has_items, has_movie, may_be_sequence;
    uint32_t primary; // item; 0 where there is none
    HEIFPart infos, places, properties, associations, references, data, movie;
} HEIFFile;

typedef enum { HEIFReady, HEIFWaits, HEIFWrong } HEIFLook;

/// Passes boxes until those that tell of pictures were found.
/// - Parameter is_whole: no more bytes will come.
HEIFLook heif_look(HEIFFile *file, bool is_whole, CodecFault *fault);

HEIFCursor heif_cursor(const HEIFFile *file, HEIFPart part);
/// The next bytes as a number, the first the highest.
uint64_t heif_take(HEIFCursor *cursor, int bytes);
/// The next box of those in a row. False: there is none.
bool heif_next(const HEIFFile *file, HEIFPart *rest, HEIFBox *box);
/// The first box of a type among those.
bool heif_find(const HEIFFile *file, HEIFPart boxes, uint32_t type, HEIFPart *content);

/// An item's type; 0 where there is none.
uint32_t heif_item_type(const HEIFFile *file, uint32_t item);

#define HEIF_MAX_EXTENTS 16
/// Where an item's bytes are, in this order.
typedef struct {
    int count;
    HEIFPart parts[HEIF_MAX_EXTENTS];
    uint64_t bytes, end; // of all; the end of what is farthest in the file
} HEIFExtents;
/// False: nowhere that is known.
bool heif_extents(const HEIFFile *file, uint32_t item, HEIFExtents *extents);

#define HEIF_MAX_PROPERTIES 32
typedef struct {
    int count;
    struct {
        HEIFBox box;
        bool is_essential;
    } all[HEIF_MAX_PROPERTIES];
} HEIFProperties;
/// False: there are too many, or one that isn't there.
bool heif_properties(const HEIFFile *file, uint32_t item, HEIFProperties *properties);
/// The first of a type.
bool heif_property(const HEIFProperties *properties, uint32_t type, HEIFPart *content);

/// What an item refers to; a cursor that is before the first, and how many bytes each takes. 0: nothing.
uint32_t heif_references(const HEIFFile *file, uint32_t item, uint32_t type, HEIFCursor *items, int *size);
/// The next item after `after`, in the order of their numbers, that refers to `item`. 0: none.
uint32_t heif_referrer(const HEIFFile *file, uint32_t item, uint32_t type, uint32_t after);

#endif
