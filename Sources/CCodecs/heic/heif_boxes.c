#include "heif_boxes.h"

// The most bytes of a box that are scanned for an item. Enough for about 10,000 items.
#define MAX_TABLE ((uint64_t)256 * 1024)
// The most properties shared by all items.
#define MAX_SHARED 1024

HEIFCursor heif_cursor(const HEIFFile *file, HEIFPart part) {
    static const uint8_t none = 0;
    bool is_there = file->bytes && part.at <= file->count && part.count <= file->count - part.at;
    const uint8_t *start = is_there ? file->bytes + part.at : &none;
    return (HEIFCursor){start, start + (is_there ? part.count : 0), !is_there};
}

uint64_t heif_read(HEIFCursor *cursor, int bytes) {
    if (cursor->is_short || cursor->end - cursor->at < bytes) {
        cursor->is_short = true;
        cursor->at = cursor->end;
        return 0;
    }
    uint64_t value = 0;
    for (int index = 0; index < bytes; index++) value = value << 8 | *cursor->at++;
    return value;
}

// Reads a box's head: its type and the range of its content. A size of 0 means all that follows.
static bool read_head(HEIFCursor *cursor, uint64_t room, HEIFBox *box) {
    uint64_t size = heif_read(cursor, 4), head = 8;
    box->type = (uint32_t)heif_read(cursor, 4);
    if (size == 1) {
        size = heif_read(cursor, 8);
        head = 16;
    } else if (!size) {
        size = room;
    }
    if (cursor->is_short || size < head) return false;
    box->content = (HEIFPart){head, size - head};
    return true;
}

bool heif_next(const HEIFFile *file, HEIFPart *rest, HEIFBox *box) {
    HEIFCursor cursor = heif_cursor(file, *rest);
    if (!read_head(&cursor, rest->count, box)) return false;
    uint64_t size = box->content.at + box->content.count;
    if (size > rest->count) return false;
    box->content.at += rest->at;
    rest->at += size;
    rest->count -= size;
    return true;
}

bool heif_find(const HEIFFile *file, HEIFPart boxes, uint32_t type, HEIFPart *content) {
    HEIFBox box;
    while (heif_next(file, &boxes, &box))
        if (box.type == type) {
            *content = box.content;
            return true;
        }
    return false;
}

static HEIFPart after(HEIFPart part, uint64_t count) {
    if (count > part.count) count = part.count;
    return (HEIFPart){part.at + count, part.count - count};
}

static void read_brands(HEIFFile *file, HEIFPart content) {
    HEIFCursor cursor = heif_cursor(file, content);
    while (!cursor.is_short)
        switch (heif_read(&cursor, 4)) {
        case HEIF_TYPE('m', 's', 'f', '1'):
        case HEIF_TYPE('h', 'e', 'v', 'c'):
        case HEIF_TYPE('h', 'e', 'v', 'x'):
            file->may_be_sequence = true;
        }
}

static bool read_items(HEIFFile *file, HEIFPart content) {
    HEIFPart boxes = after(content, 4), place, properties;
    if (heif_find(file, boxes, HEIF_TYPE('p', 'i', 't', 'm'), &place)) {
        HEIFCursor cursor = heif_cursor(file, place);
        int size = heif_read(&cursor, 4) >> 24 ? 4 : 2;
        file->primary = (uint32_t)heif_read(&cursor, size);
    }
    (void)heif_find(file, boxes, HEIF_TYPE('i', 'i', 'n', 'f'), &file->infos);
    (void)heif_find(file, boxes, HEIF_TYPE('i', 'l', 'o', 'c'), &file->places);
    (void)heif_find(file, boxes, HEIF_TYPE('i', 'r', 'e', 'f'), &file->references);
    (void)heif_find(file, boxes, HEIF_TYPE('i', 'd', 'a', 't'), &file->data);
    if (heif_find(file, boxes, HEIF_TYPE('i', 'p', 'r', 'p'), &properties)) {
        (void)heif_find(file, properties, HEIF_TYPE('i', 'p', 'c', 'o'), &file->properties);
        (void)heif_find(file, properties, HEIF_TYPE('i', 'p', 'm', 'a'), &file->associations);
    }
    file->has_items = true;
    return file->infos.count <= MAX_TABLE && file->places.count <= MAX_TABLE
        && file->references.count <= MAX_TABLE && file->associations.count <= MAX_TABLE;
}

// Reads a complete box. Returns false if its contents exceed a limit.
static bool read_box(HEIFFile *file, HEIFBox box) {
    if (box.type == HEIF_TYPE('f', 't', 'y', 'p')) read_brands(file, box.content);
    if (box.type == HEIF_TYPE('m', 'e', 't', 'a') && !file->has_items) return read_items(file, box.content);
    if (box.type == HEIF_TYPE('m', 'o', 'o', 'v') && !file->has_movie) {
        file->movie = box.content;
        file->has_movie = true;
    }
    return true;
}

static bool is_read(uint32_t type) {
    return type == HEIF_TYPE('f', 't', 'y', 'p') || type == HEIF_TYPE('m', 'e', 't', 'a')
        || type == HEIF_TYPE('m', 'o', 'o', 'v');
}

// Whether all images are known. For a possible sequence, the box of its track must be read, because there may
// be no other image.
static bool has_all_images(const HEIFFile *file) {
    return file->may_be_sequence ? file->has_movie : file->has_items;
}

HEIFScan heif_scan(HEIFFile *file, bool is_whole, CodecFault *fault) {
    *fault = CodecFaultBroken;
    while (!has_all_images(file)) {
        // The head may be shorter than 16 bytes at the end of the file.
        uint64_t left = file->passed < file->count ? file->count - file->passed : 0;
        HEIFCursor cursor = heif_cursor(file, (HEIFPart){file->passed, left < 16 ? left : 16});
        HEIFBox box;
        bool has_head = left >= 8 && read_head(&cursor, UINT64_MAX - file->passed, &box);
        if (left >= 8 && !has_head && !cursor.is_short) return HEIFWrong;
        uint64_t size = has_head ? box.content.at + box.content.count : 16;
        if (size > UINT64_MAX - file->passed) return HEIFWrong;
        uint64_t end = file->passed + size;
        bool is_wanted = has_head && is_read(box.type);
        // A box that extends to the end of the file is the last one.
        if (!is_wanted && end == UINT64_MAX) return file->has_items ? HEIFReady : HEIFWrong;
        if (is_wanted && box.content.count > HEIF_MAX_BOX) {
            *fault = CodecFaultTooMuchMemory;
            return HEIFWrong;
        }
        if (!has_head || (is_wanted && end > file->count)) {
            file->retry_at = end;
            if (!is_whole) return HEIFWaits;
            // A sequence's second box may be missing if the file ends here.
            if (file->has_items && !has_head && !left) return HEIFReady;
            *fault = CodecFaultCutShort;
            return HEIFWrong;
        }
        box.content.at += file->passed;
        file->passed = end;
        if (!is_wanted) continue;
        if (!read_box(file, box)) {
            *fault = CodecFaultTooMuchMemory;
            return HEIFWrong;
        }
    }
    return HEIFReady;
}

uint32_t heif_item_type(const HEIFFile *file, uint32_t item) {
    HEIFCursor head = heif_cursor(file, file->infos);
    int size = heif_read(&head, 4) >> 24 ? 4 : 2;
    HEIFPart boxes = after(file->infos, (uint64_t)(4 + size));
    HEIFBox box;
    while (heif_next(file, &boxes, &box)) {
        if (box.type != HEIF_TYPE('i', 'n', 'f', 'e')) continue;
        HEIFCursor cursor = heif_cursor(file, box.content);
        uint64_t version = heif_read(&cursor, 4) >> 24;
        if (version != 2 && version != 3) continue;
        uint64_t id = heif_read(&cursor, version == 3 ? 4 : 2);
        // Protected items cannot be read.
        if (id == item) return heif_read(&cursor, 2) ? 0 : (uint32_t)heif_read(&cursor, 4);
    }
    return 0;
}

static bool add_extent(const HEIFFile *file, HEIFExtents *extents, int method, uint64_t at, uint64_t count) {
    if (extents->count == HEIF_MAX_EXTENTS || !count || at > UINT64_MAX - count) return false;
    if (method == 1) {
        if (at > file->data.count || count > file->data.count - at) return false;
        at += file->data.at;
    }
    if (count > UINT64_MAX - extents->bytes) return false;
    extents->parts[extents->count++] = (HEIFPart){at, count};
    extents->bytes += count;
    if (at + count > extents->end) extents->end = at + count;
    return true;
}

bool heif_extents(const HEIFFile *file, uint32_t item, HEIFExtents *extents) {
    *extents = (HEIFExtents){0};
    HEIFCursor cursor = heif_cursor(file, file->places);
    int version = (int)(heif_read(&cursor, 4) >> 24);
    int sizes = (int)heif_read(&cursor, 2);
    int offset_size = sizes >> 12, length_size = sizes >> 8 & 15, base_size = sizes >> 4 & 15;
    int index_size = version ? sizes & 15 : 0;
    if (version > 2 || offset_size > 8 || length_size > 8 || base_size > 8 || index_size > 8) return false;
    uint64_t left = heif_read(&cursor, version < 2 ? 2 : 4);
    for (; left && !cursor.is_short; left--) {
        uint64_t id = heif_read(&cursor, version < 2 ? 2 : 4);
        int method = version ? (int)heif_read(&cursor, 2) & 15 : 0;
        bool is_elsewhere = heif_read(&cursor, 2) != 0;
        uint64_t base = heif_read(&cursor, base_size);
        uint64_t count = heif_read(&cursor, 2);
        if (id == item && (is_elsewhere || method > 1)) return false;
        for (; count && !cursor.is_short; count--) {
            (void)heif_read(&cursor, index_size);
            uint64_t offset = heif_read(&cursor, offset_size), length = heif_read(&cursor, length_size);
            if (id != item || cursor.is_short) continue;
            if (offset > UINT64_MAX - base) return false;
            if (!add_extent(file, extents, method, base + offset, length)) return false;
        }
        if (id == item) return extents->count && !cursor.is_short;
    }
    return false;
}

// Finds the shared property with this number, counted from 1.
static bool shared(const HEIFFile *file, uint64_t number, HEIFBox *box) {
    HEIFPart boxes = file->properties;
    if (!number || number > MAX_SHARED) return false;
    for (; number; number--)
        if (!heif_next(file, &boxes, box)) return false;
    return true;
}

bool heif_properties(const HEIFFile *file, uint32_t item, HEIFProperties *properties) {
    properties->count = 0;
    HEIFCursor cursor = heif_cursor(file, file->associations);
    uint64_t head = heif_read(&cursor, 4);
    int id_size = head >> 24 ? 4 : 2, size = head & 1 ? 2 : 1;
    uint64_t essential = size == 2 ? 0x8000 : 0x80;
    for (uint64_t left = heif_read(&cursor, 4); left && !cursor.is_short; left--) {
        uint64_t id = heif_read(&cursor, id_size);
        int count = (int)heif_read(&cursor, 1);
        if (id == item && count > HEIF_MAX_PROPERTIES) return false;
        for (; count && !cursor.is_short; count--) {
            uint64_t number = heif_read(&cursor, size);
            if (id != item || !(number & ~essential)) continue;
            HEIFBox box;
            if (!shared(file, number & ~essential, &box)) return false;
            properties->all[properties->count].box = box;
            properties->all[properties->count++].is_essential = number & essential;
        }
        if (id == item) return !cursor.is_short;
    }
    return !cursor.is_short;
}

bool heif_property(const HEIFProperties *properties, uint32_t type, HEIFPart *content) {
    for (int index = 0; index < properties->count; index++)
        if (properties->all[index].box.type == type) {
            *content = properties->all[index].box.content;
            return true;
        }
    return false;
}

// The boxes of references. Each has a type and leads from one item to others.
static HEIFPart reference_boxes(const HEIFFile *file, int *size) {
    HEIFCursor head = heif_cursor(file, file->references);
    *size = heif_read(&head, 4) >> 24 ? 4 : 2;
    return after(file->references, 4);
}

uint32_t heif_references(const HEIFFile *file, uint32_t item, uint32_t type, HEIFCursor *items, int *size) {
    HEIFPart boxes = reference_boxes(file, size);
    HEIFBox box;
    while (heif_next(file, &boxes, &box)) {
        if (box.type != type) continue;
        *items = heif_cursor(file, box.content);
        if (heif_read(items, *size) != item) continue;
        uint32_t count = (uint32_t)heif_read(items, 2);
        return items->end - items->at < (int64_t)count * *size ? 0 : count;
    }
    return 0;
}

uint32_t heif_referrer(const HEIFFile *file, uint32_t item, uint32_t type, uint32_t after) {
    int size;
    HEIFPart boxes = reference_boxes(file, &size);
    HEIFBox box;
    uint32_t next = 0;
    while (heif_next(file, &boxes, &box)) {
        if (box.type != type) continue;
        HEIFCursor cursor = heif_cursor(file, box.content);
        uint32_t from = (uint32_t)heif_read(&cursor, size);
        if (from <= after || (next && from >= next)) continue;
        for (uint64_t left = heif_read(&cursor, 2); left && !cursor.is_short; left--)
            if (heif_read(&cursor, size) == item && !cursor.is_short) next = from;
    }
    return next;
}
