// The reasons why an image is refused.
#ifndef FAULT_H
#define FAULT_H

// Swift imports these as enums without unknown cases. GCC has no such attribute.
#if __has_attribute(enum_extensibility)
#define CODECS_CLOSED __attribute__((enum_extensibility(closed)))
#else
#define CODECS_CLOSED
#endif

/// Why the image cannot be decoded.
typedef enum CODECS_CLOSED {
    CodecFaultNone,
    /// The bytes end too early.
    CodecFaultCutShort,
    /// The bytes break the format's rules.
    CodecFaultBroken,
    /// The format allows it, but the library does not decode it.
    CodecFaultUnsupported,
    /// A side is longer than the library supports.
    CodecFaultTooLarge,
    /// The file has more scans than allowed.
    CodecFaultTooManyScans,
    /// The file has more frames than allowed, or all frames together have too many pixels.
    CodecFaultTooManyFrames,
    /// A frame has more pixels than allowed.
    CodecFaultFrameTooLarge,
    /// Decoding takes more memory than allowed or available.
    CodecFaultTooMuchMemory,
} CodecFault;

#endif
