package import Jobs

/// Decodes images while their bytes arrive, and renders variants from them.
///
/// Input: the bytes of a file of any ``ImageFormat``, in pieces of any size. Output: the header, the image's
/// description, previews, and the encoded variants. Every frame is decoded to its end; pixels are kept only for previews.
///
/// Everything runs synchronously on the calling thread, in steps of about 10 ms. Only one thread may use a decoder at
/// a time. The module starts no thread or task.
///
/// Read the files in this order: `StreamingDecoder`, `ImageReader` and one of its implementations (`JPEGImageReader`,
/// then `CCodecs/jpeg/jpeg.c`), `StreamingRenderer`, `VariantPlan`, `VariantPipeline`, `ImageFormat+Traits`.
///
/// Work that cannot fail is skipped while the pixels are not needed. For a JPEG, all codes are read, but the inverse
/// transform runs at the smallest scale that suffices for the LQIP.
///
/// A preview has at most 8 MiB; a larger one is discarded.
/// - JPEG with several scans: a baseline JPEG of all complete scans and the received part of the next one.
/// - Interlaced PNG: a PNG of the complete passes, limited to the first passes (at most six) that have 4 MP together.
///
/// When an image counts as complete:
/// - JPEG: at its EOI marker. A Huffman-coded file may lack EOI if its last MCU can be decoded and no later scan could
///   add anything. With arithmetic coding, missing data could not be noticed. A progressive JPEG needs a scan of each
///   component; T.81 does not require that scans refine all coefficients.
/// - PNG: at its IEND chunk, which may be missing if the image data is complete. The checksums of all chunks that
///   pixels depend on (IHDR, PLTE, tRNS, IDAT, IEND) and of the compressed data are checked. In an animation, each
///   frame must have data for all its rows, with correct checksums; otherwise the animation is ignored. Other chunks
///   are skipped. The decoded image is the file's default image.
/// - WebP: all bytes that the RIFF header announces are present, and the data of each frame suffices for its pixels.
/// - GIF: at its trailer, or at other bytes or the end of the data after a complete frame. Each frame must have codes
///   for all its pixels.
/// - AVIF: all bytes of its frames are present. They are collected before decoding begins, and
///   ``ImageHeader/decodingMemory`` includes them.
/// - HEIC: all bytes of its tiles are present and each block is decoded. For a sequence, the first frame is decoded;
///   `frames` is read from the file's table.
/// - JPEG XL: all sections in the tables of its frames are present, up to the last frame. Boxes outside the
///   codestream are skipped.
///
/// A single frame may have as many pixels as a still image. All frames together may have the same
/// number, plus 1,024 pixels for each byte of the file.
///
/// Some steps take longer than 10 ms, because the library cannot be interrupted:
/// - HEIC: 10 to 80 ms per megapixel for a slice. Most tiles and untiled images are one slice.
/// - AVIF: 15 to 60 ms per megapixel for a frame, 280 ms for noise.
/// - WebP: some milliseconds per megapixel for a few bytes that fill a large area.
/// - JPEG XL: about 80 ms for 32 KiB of data, and about 100 ms per megapixel at the end of a frame that is
///   transformed as a whole.
///
/// Arithmetic-coded JPEGs are decoded once all bytes are present, because the library's arithmetic decoder cannot
/// wait for more. They may have at most 8 MiB, which ``ImageHeader/decodingMemory`` includes.
package struct StreamingCodec: ImageCodec {
  private let formats: Set<ImageFormat>

  /// - Parameter formats: the formats to decode. Others are refused by name, whatever the limits of an image allow.
  package init(formats: Set<ImageFormat> = Set(ImageFormat.allCases)) { self.formats = formats }

  /// Makes a decoder for one image. Its errors are ``CodecError``.
  package func makeDecoder(limits: DecodeLimits, variants: [VariantRequest]) -> any ImageDecoder {
    var limits = limits
    limits.formats.formIntersection(formats)
    return StreamingDecoder(limits: limits, plan: variants.isEmpty ? nil : VariantPlan(variants))
  }
}
