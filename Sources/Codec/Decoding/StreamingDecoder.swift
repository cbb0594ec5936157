internal import CCodecs
internal import Jobs

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
