internal import CCodecs
package import Jobs

/// Detects the format from the first bytes, then passes the bytes to that format's reader.
final class StreamingDecoder: ImageDecoder {
  private enum State {
    case sniffing
    case reading(any ImageReader, ImageFormat)
    /// The image is decoded, and its variants are still being encoded.
    case writing(any ImageReader, ImageDescription)
    case finished(ImageDescription)
    case failed(CodecError)
  }

  private let limits: DecodeLimits
  private var state = State.sniffing
  private var pending = PendingBytes()
  private var hasEnded = false

  /// Nil if no variants are wanted.
  private let plan: VariantPlan?
  /// Whether the image was validated before and only its pixels are wanted.
  private let wantsOnlyRows: Bool

  init(limits: DecodeLimits, plan: VariantPlan? = nil, wantsOnlyRows: Bool = false) {
    (self.limits, self.plan, self.wantsOnlyRows) = (limits, plan, wantsOnlyRows)
  }

  func append(_ bytes: [UInt8]) {
    switch state {
    case .sniffing, .reading: pending.append(bytes)
    case .writing, .finished, .failed: break
    }
  }

  func finishInput() { hasEnded = true }

  func step() throws(CodecError) -> DecodeStep {
    do throws(CodecError) {
      return try advance()
    } catch {
      finish(as: .failed(error))
      throw error
    }
  }

  private func advance() throws(CodecError) -> DecodeStep {
    switch state {
    case .sniffing: return try sniff()
    case .reading(let reader, let format): return try read(with: reader, format)
    case .writing(let reader, let description): return write(reader, description)
    case .finished(let description): return .finished(description)
    case .failed(let error): throw error
    }
  }

  private func sniff() throws(CodecError) -> DecodeStep {
    let signature = pending.withUnread { ImageSignature(of: $0, isWhole: hasEnded) }
    switch signature {
    case .undecided:
      return .needsBytes
    case .cutShort:
      throw .cutShort
    case .other(let name):
      throw .unsupportedFormat(name: name)
    case .decodable(let format):
      guard limits.formats.contains(format) else {
        throw .unsupportedFormat(name: format.name)
      }
      guard let reader = format.traits.reader(limits) else {
        throw .tooMuchMemory(bytes: limits.maxMemory, limit: limits.maxMemory)
      }
      if wantsOnlyRows { reader.limitToRows() }
      if let plan, !reader.requestRows() { plan.fail(.unsupportedFormat(name: format.name)) }
      state = .reading(reader, format)
      return try read(with: reader, format)
    }
  }

  // MARK: Variants

  var variants: [[UInt8]?] { plan?.results.map { try? $0.get() } ?? [] }

  private func write(_ reader: any ImageReader, _ description: ImageDescription) -> DecodeStep {
    guard plan?.finish(reader.properties) ?? true else { return .hasMore }
    finish(as: .finished(description))
    return .finished(description)
  }

  // MARK: Previews

  private var reader: (any ImageReader)? {
    if case .reading(let reader, _) = state { reader } else { nil }
  }

  var hasMoreToShow: Bool { !hasEnded && (reader?.properties.scansToShow ?? 0) > 0 }

  func beginPreview() {
    guard !hasEnded, let reader else { return }
    reader.requestPreview(orientation: reader.properties.orientation)
  }

  func takePreview() -> Preview? {
    guard case .reading(let reader, let format) = state else { return nil }
    let made = reader.preview
    guard let start = made.bytes else { return nil }
    let bytes = Array(UnsafeBufferPointer(start: start, count: made.count))
    reader.discardPreview()
    return Preview(bytes: bytes, format: reader.previewFormat ?? format, scan: Int(made.scan))
  }

  func discardPreview() { reader?.discardPreview() }

  // MARK: Formats

  private func read(
    with reader: any ImageReader, _ format: ImageFormat
  ) throws(CodecError) -> DecodeStep {
    try checkBacklog(of: reader)
    let step = runSteps(of: reader)
    switch step.status {
    case .rows:
      return .hasMore
    case .needsBytes:
      return .needsBytes
    case .hasMore:
      return .hasMore
    case .header:
      var header = ImageHeader(reader.properties, format: format)
      try limits.check(header)
      header.decodingMemory +=
        plan?.prepare(header, reader, maxMemory: limits.maxMemory) ?? 0
      if format.traits.checksVariantMemory {
        try limits.checkVariantMemory(
          of: ImageDescription(reader.properties, format: format),
          fileBytes: Int(clamping: reader.properties.fileBytes))
      }
      reader.limit(header, by: limits)
      return .header(header)
    case .finished:
      let description = ImageDescription(reader.properties, format: format)
      state = .writing(reader, description)
      return write(reader, description)
    case .failed:
      throw CodecError(step.fault, of: reader, format: format, limits: limits)
    }
  }

  /// Runs one step of the reader, and further steps while they return rows and time is left.
  private func runSteps(of reader: any ImageReader) -> CodecStep {
    let end = plan == nil ? nil : ContinuousClock.now + StreamingRendering.slice
    while true {
      let step = pending.withUnread { reader.step($0, ended: hasEnded) }
      pending.removeFirst(step.consumed)
      guard step.status == .rows, let end else { return step }
      plan?.addRows(from: reader)
      if ContinuousClock.now > end { return step }
    }
  }

  /// An arithmetic-coded JPEG waits for its last byte. The waiting bytes use memory, and the header's
  /// `decodingMemory` includes only this limit.
  private func checkBacklog(of reader: any ImageReader) throws(CodecError) {
    let limit = reader.properties.maxBacklog
    guard limit > 0, pending.count > limit else { return }
    throw .tooMuchMemory(bytes: pending.count, limit: limit)
  }

  /// Frees the reader and the bytes now, instead of when the decoder is released.
  private func finish(as end: State) {
    state = end
    pending = PendingBytes()
  }
}

/// Bytes that have arrived and are not consumed yet, in order.
struct PendingBytes {
  private var bytes: [UInt8] = []
  private var start = 0

  var count: Int { bytes.count - start }

  /// Appends bytes. If no bytes are pending, the array is adopted without a copy.
  mutating func append(_ more: [UInt8]) {
    if count == 0 {
      bytes = more
      start = 0
      return
    }
    // Moves the rest to the front only after dropping at least as many bytes. So each byte is moved once on average.
    if start > bytes.count / 2 {
      bytes.removeFirst(start)
      start = 0
    }
    bytes.append(contentsOf: more)
  }

  mutating func removeFirst(_ count: Int) {
    start += min(count, self.count)
    if start == bytes.count { self = PendingBytes() }
  }

  /// Calls `body` with the bytes that were not dropped.
  func withUnread<Result>(_ body: (UnsafeBufferPointer<UInt8>) -> Result) -> Result {
    bytes.withUnsafeBufferPointer { body(UnsafeBufferPointer(rebasing: $0[start...])) }
  }
}

/// How long one step may compute. A decoder that runs longer is treated as stuck.
///
/// A step usually ends after about 10 ms. But some library calls cannot be divided: a frame, a slice, the encoding of
/// a file. ``FormatTraits/stepTime`` and ``PixelWriting/stepTime`` define the time for these, and docs/limits.md has
/// the measurements. Every image may take at least 100 ms, also before its size is known (see `IsolatedCodec`).
package enum StepTime {
  /// The limit for decoding an image and making these variants during the decode.
  package static func most(of header: ImageHeader, _ requests: [VariantRequest]) -> Duration {
    let image = ImageDescription(format: header.format, width: header.width, height: header.height)
    let variants = requests.map { request in
      request.variant(
        of: image.format, isTransparent: false, formats: Set(OutputFormat.allCases))
    }
    // The orientation may be known only after the pixels, so both directions are tried.
    let ways = [1, 6].map { orientation in
      var image = image
      image.orientation = orientation
      return most(of: image, variants)
    }
    return ways.max() ?? .zero
  }

  /// The limit for rendering these variants from an image.
  package static func most(of image: ImageDescription, _ variants: [Variant]) -> Duration {
    let read = time(image.width, image.height, image.format.traits.stepTime)
    return variants.reduce(variants.isEmpty ? read : read + profile) { sum, variant in
      let size = VariantGeometry(of: variant, from: image).size
      return sum + time(size.width, size.height, variant.format.writing.stepTime)
    }
  }

  /// Time for the tables of a color profile, which are computed before the first row of variants, whatever the
  /// image's size. Ten times the measured time.
  private static let profile = Duration.seconds(1)

  /// One millisecond per megapixel equals one nanosecond per pixel.
  private static func time(_ width: Int, _ height: Int, _ stepTime: Int) -> Duration {
    .nanoseconds(1) * (Double(width) * Double(height) * Double(stepTime))
  }
}

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
