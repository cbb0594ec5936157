// Reads the boxes of a HEIF file (ISO/IEC 14496-12 and 23008-12). They say where the images are and how they
// are shown.
//
// Nothing is allocated or copied: each query scans the box that has the answer, with a bounded effort. Every
// result was checked against the bounds of its box. Offsets into the file are not checked, because the file may
// not be complete yet.
#ifndef HEIF_BOXES_H
#define HEIF_BOXES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"

#define HEIF_TYPE(a, b, c, d) ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))
/// The largest box of image descriptions. It may contain a color profile.
#define HEIF_MAX_BOX ((uint64_t)8 * 1024 * 1024)

/// A range of bytes, counted from the file's start.
typedef struct {
    uint64_t at, count;
} HEIFPart;

/// A reading position. Reads beyond the end return 0 and set `is_short`.
typedef struct {
    const uint8_t *at, *end;
    bool is_short;
} HEIFCursor;

typedef struct {
    uint32_t type;
    HEIFPart content;
} HEIFBox;

typedef struct {
    /// The received bytes of the file. The owner updates them when more arrive.
    const uint8_t *bytes;
    size_t count;
    /// How far boxes were skipped, and the number of bytes at which another scan is worthwhile.
    uint64_t passed, retry_at;
    bool has_items, has_movie, may_be_sequence;
    uint32_t primary; // the primary item; 0 if there is none
    HEIFPart infos, places, properties, associations, references, data, movie;
} HEIFFile;

typedef enum { HEIFReady, HEIFWaits, HEIFWrong } HEIFScan;

/// Scans the boxes until those that describe images are found.
/// - Parameter is_whole: whether no more bytes will arrive.
HEIFScan heif_scan(HEIFFile *file, bool is_whole, CodecFault *fault);

HEIFCursor heif_cursor(const HEIFFile *file, HEIFPart part);
/// Reads the next bytes as a big-endian number.
uint64_t heif_read(HEIFCursor *cursor, int bytes);
/// Reads the next box in a range of boxes. Returns false at the end.
bool heif_next(const HEIFFile *file, HEIFPart *rest, HEIFBox *box);
/// Finds the first box of a type in a range of boxes.
bool heif_find(const HEIFFile *file, HEIFPart boxes, uint32_t type, HEIFPart *content);

/// The type of an item; 0 if the item does not exist.
uint32_t heif_item_type(const HEIFFile *file, uint32_t item);

#define HEIF_MAX_EXTENTS 16
/// The places of an item's bytes. They are joined in this order.
typedef struct {
    int count;
    HEIFPart parts[HEIF_MAX_EXTENTS];
    uint64_t bytes, end; // the sum of all parts; the largest end offset
} HEIFExtents;
/// Returns false if the place of the bytes is not known.
bool heif_extents(const HEIFFile *file, uint32_t item, HEIFExtents *extents);

#define HEIF_MAX_PROPERTIES 32
typedef struct {
    int count;
    struct {
        HEIFBox box;
        bool is_essential;
    } all[HEIF_MAX_PROPERTIES];
} HEIFProperties;
/// Returns false if the item has too many properties or names one that does not exist.
bool heif_properties(const HEIFFile *file, uint32_t item, HEIFProperties *properties);
/// Finds the first property of a type.
bool heif_property(const HEIFProperties *properties, uint32_t type, HEIFPart *content);

/// The items that an item refers to. Sets a cursor before the first one and the number of bytes of each.
/// Returns how many there are.
uint32_t heif_references(const HEIFFile *file, uint32_t item, uint32_t type, HEIFCursor *items, int *size);
/// The next item after `after`, in numeric order, that refers to `item`. 0 if there is none.
uint32_t heif_referrer(const HEIFFile *file, uint32_t item, uint32_t type, uint32_t after);

#endif
