// Unmaps libraries that decoders never call. They are half of all mappings, which every fork copies and every
// exit removes. They also contain code that an attacker in a decoder could use.
#define _GNU_SOURCE
#include "messages.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    uintptr_t start, end;
    const ElfW(Dyn) *dynamic;
    const char *strings, *name;
    bool is_needed;
} Object;

static Object objects[256];
static size_t count;

static int record_library(struct dl_phdr_info *info, size_t size, void *is_complete) {
    (void)size;
    // The kernel's vDSO, which is needed to read the time.
    if (info->dlpi_addr == getauxval(AT_SYSINFO_EHDR)) return 0;
    if (count == sizeof objects / sizeof *objects) {
        *(bool *)is_complete = false;
        return 1;
    }
    Object *object = &objects[count++];
    *object = (Object){.start = UINTPTR_MAX, .name = ""};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_DYNAMIC) object->dynamic = (const ElfW(Dyn) *)start;
        if (part->p_type != PT_LOAD) continue;
        if (start < object->start) object->start = start;
        if (start + part->p_memsz > object->end) object->end = start + part->p_memsz;
    }
    for (const ElfW(Dyn) *entry = object->dynamic; entry && entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_STRTAB) object->strings = (const char *)entry->d_un.d_ptr;
    for (const ElfW(Dyn) *entry = object->dynamic; entry && entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_SONAME) object->name = object->strings + entry->d_un.d_val;
    return 0;
}

static Object *find_library(const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(objects[i].name, name) == 0) return &objects[i];
    return NULL;
}

/// Libraries used only by the service: transfers, digests, responses, databases and configuration.
static const char *const of_service[] = {
    "libcrypto.so.", "libcurl.so.", "libmicrohttpd.so.", "libpq.so.", "libsqlite3.so.", "libyaml-0.so."};

/// Codecs that libavif does not need if it has dav1d for decoding and libaom for encoding.
static const char *const second_choice[] = {"libgav1.so.", "librav1e.so.", "libSvtAv1Enc.so."};

#define IS_ONE_OF(names, name) is_one_of(names, sizeof names / sizeof *names, name)

static bool is_one_of(const char *const *names, size_t many, const char *name) {
    for (size_t i = 0; i < many; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0) return true;
    return false;
}

static bool has_first_choice(void) {
    size_t found = 0;
    static const char *const names[] = {"libdav1d.so.", "libaom.so."};
    for (size_t i = 0; i < count; i++) found += IS_ONE_OF(names, objects[i].name);
    return found == 2;
}

/// Marks a library as needed, and all libraries that it links.
static void mark_needed(Object *object, bool has_choice) {
    object->is_needed = true;
    for (const ElfW(Dyn) *entry = object->dynamic; entry && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag != DT_NEEDED) continue;
        const char *name = object->strings + entry->d_un.d_val;
        if (IS_ONE_OF(of_service, name) || (has_choice && IS_ONE_OF(second_choice, name))) continue;
        Object *other = find_library(name);
        if (other && !other->is_needed) mark_needed(other, has_choice);
    }
}

uint64_t libraries_unmap_unused(void) {
#if __has_feature(address_sanitizer)
    // AddressSanitizer's reports inspect all loaded libraries.
    return 0;
#endif
    // Without LD_BIND_NOW, later symbol lookups would search all libraries.
    bool is_complete = getenv("LD_BIND_NOW") != NULL;
    if (is_complete) dl_iterate_phdr(record_library, &is_complete);
    if (!is_complete) return 0;
    mark_needed(&objects[0], has_first_choice());
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
    uint64_t bytes = 0;
    for (size_t i = 1; i < count; i++) {
        if (objects[i].is_needed) continue;
        uintptr_t start = objects[i].start & ~page, end = (objects[i].end + page) & ~page;
        if (madvise((void *)start, end - start, MADV_DONTFORK) == 0) bytes += end - start;
    }
    return bytes;
}

static size_t (*minimum_of_libc)(const pthread_attr_t *);

__attribute__((constructor)) static void find(void) {
    minimum_of_libc = (size_t (*)(const pthread_attr_t *))dlsym(RTLD_NEXT, "__pthread_get_minstack");
}

/// When libdav1d starts, it looks up this name in all libraries up to libc. The program comes first in that
/// order, so this definition stops the search.
size_t minimum_of_program(const pthread_attr_t *attributes) __asm__("__pthread_get_minstack");
size_t minimum_of_program(const pthread_attr_t *attributes) {
    return minimum_of_libc ? minimum_of_libc(attributes) : PTHREAD_STACK_MIN;
}
