public import Jobs

/// Decodes JPEG, PNG, WebP, GIF, AVIF, JPEG XL and HEIC while their bytes arrive, every frame to its end, and keeps no pixel but those of
/// previews.
///
/// What can't fail is left out where nobody wants the pixels: of a JPEG every code is read, and its inverse transform
/// runs at as few eighths of its sides as an LQIP wants.
///
/// A preview of a JPEG in several scans is a baseline JPEG of the whole scans so far, and of what came of the next; of
/// an interlaced PNG it is a PNG of the whole passes so far, as many of the first six as have 4 MP at the most together.
/// Its bytes are 8 MiB at the most; one that would have more is none.
///
/// What counts as whole:
/// - A JPEG ends with its EOI marker. Where only that is missing, a picture in one Huffman-coded scan
///   whose last MCU can be decoded is taken; of any other nobody could tell that nothing is missing.
///   A progressive one needs a scan of each component; T.81 does not ask that it refines all coefficients.
/// - A PNG ends with its IEND chunk. Every checksum of the chunks that pixels depend on (IHDR, PLTE, tRNS,
///   IDAT, IEND) and of the compressed data is checked; other chunks are passed over, but an animation's: each of its
///   frames has data for all its rows, whose checksums are checked, too. What is shown is the file's own picture.
/// - A WebP has all bytes that its RIFF header tells of, and each frame's data is enough for its pixels.
/// - A GIF ends with its trailer, and each frame has codes for all its pixels.
/// - An AVIF has all bytes that its frames are in. They are gathered before any is decoded, and
///   ``ImageHeader/decodingMemory`` includes them.
/// - A HEIC has all bytes that its tiles are in, and each block of them is written; of a sequence the first picture is decoded,
///   and of the others `frames` tells as the file's table does.
/// - A JPEG XL has all sections that its frames' tables tell of, up to the last frame; boxes of a container that are no
///   part of the codestream are passed over.
///
/// One frame has as many pixels as a picture may have; all of them together no more, and 1,024 for each byte that came
/// before.
///
/// A step is some 10 ms but for four: a slice of HEIC, which most tiles and pictures are one of, takes 10 to 80 ms a megapixel; an AVIF frame is decoded in one go, some 15 to 60 ms a megapixel, 280 of noise, and so
/// is what a few bytes of WebP tell, at some milliseconds a megapixel. What 32 KiB of JPEG XL tell takes some 80 ms, and the end
/// of a frame that is transformed whole some 100 ms a megapixel.
///
/// Arithmetic-coded JPEGs are decoded once all their bytes are there: the library's arithmetic decoder
/// cannot wait for more. They may have 8 MiB, which ``ImageHeader/decodingMemory`` includes.
public struct StreamingCodec: ImageCodec {
  private let formats: Set<ImageFormat>

  /// - Parameter formats: others are refused by their names, whatever the limits of an image say.
  public init(formats: Set<ImageFormat> = Set(ImageFormat.allCases)) { self.formats = formats }

  /// A decoder for one image; what it throws is told by ``CodecError``.
  public func makeDecoder(limits: DecodeLimits, variants: [VariantRequest]) -> any ImageDecoder {
    var limits = limits
    limits.formats.formIntersection(formats)
    return StreamingDecoder(limits: limits, plan: variants.isEmpty ? nil : VariantPlan(variants))
  }
}
