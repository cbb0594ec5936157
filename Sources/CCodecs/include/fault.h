// What can be wrong with an image.
#ifndef FAULT_H
#define FAULT_H

// Swift imports these as enums without unknown cases. GCC has no such attribute.
#if __has_attribute(enum_extensibility)
#define CODECS_CLOSED __attribute__((enum_extensibility(closed)))
#else
#define CODECS_CLOSED
#endif

/// Why there is no image.
typedef enum CODECS_CLOSED {
    CodecFaultNone,
    /// The bytes ended too soon.
    CodecFaultCutShort,
    /// The bytes break the format's rules.
    CodecFaultBroken,
    /// The format's rules allow it, the library does not decode it.
    CodecFaultUnsupported,
    /// A side is longer than the library decodes.
    CodecFaultTooLarge,
    /// More scans than allowed.
    CodecFaultTooManyScans,
    /// More frames than allowed, or more pixels in all of them.
    CodecFaultTooManyFrames,
    /// A frame with more pixels than allowed.
    CodecFaultFrameTooLarge,
    /// More memory than allowed, or than there is.
    CodecFaultTooMuchMemory,
} CodecFault;

#endif
