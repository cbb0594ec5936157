internal import CIsolation
internal import CMalloc
internal import Codec
internal import Glibc
internal import Jobs

/// The decoder process: receives one image after another from the service, and has access to nothing else.
package enum DecoderServer {
  /// The hidden command that starts the program as this process.
  package static let argument = "decoder"

  /// Written before any decoder is forked.
  nonisolated(unsafe) private static var warm: WarmDecoder?

  /// Forks decoders for the service that started this process, until the service ends. Call it before any thread is
  /// started.
  package static func run() -> Never {
    warm = WarmDecoder()
    CIsolation_serve { channel, memory, count in
      guard let memory, count == SharedMemory.count else { return }
      DecoderServer.warm?.decodeSample()
      DecoderRequestHandler(memory: memory).serve(channel)
    }
  }
}

/// Handles the requests in a decoder process, for one image after another.
final class DecoderRequestHandler {
  private enum Work {
    case none
    case decoding(any ImageDecoder)
    /// The image's bytes are still arriving.
    case gathering([UInt8], ImageDescription, [Variant])
    case rendering(any Rendering)
  }

  private let all: UnsafeMutableRawPointer
  private let bytes: UnsafeMutableRawBufferPointer
  private let results: UnsafeMutableRawBufferPointer
  private var picture = Work.none
  /// The variants to make while decoding.
  private var variants: [VariantRequest] = []
  private var files: [[UInt8]] = []
  private var preview: [UInt8] = []
  /// The memory that the image takes, in bytes.
  private var memory = 0

  /// - Parameter memory: the shared memory of ``SharedMemory/count`` bytes.
  init(memory: UnsafeMutablePointer<UInt8>) {
    let room = SharedMemory.halfSize
    all = UnsafeMutableRawPointer(memory)
    bytes = UnsafeMutableRawBufferPointer(start: all, count: room)
    results = UnsafeMutableRawBufferPointer(start: all + room, count: room)
  }

  /// Returns when the service has ended or sends an invalid request.
  func serve(_ channel: Int32) {
    while let message = Self.receive(channel) {
      do throws(MalformedMessage) {
        guard let answer = try reply(toMessage: message) else { continue }
        _ = CIsolation_send(channel, answer, answer.count)
      } catch { return }
    }
  }

  /// - Returns: the reply; nil if the request has none.
  func reply(toMessage message: [UInt8]) throws(MalformedMessage) -> [UInt8]? {
    var reader = MessageReader(message)
    let number = try reader.integer()
    switch try DecoderRequest(&reader) {
    case .step(let step): return reply(to: step).message(number: number)
    case .fetch(let file, let offset):
      var writer = MessageWriter()
      writer.add(number)
      writer.add(copyToMemory(file, from: offset))
      return writer.bytes
    case .discard:
      discardImage()
      return nil
    }
  }

  private static func receive(_ channel: Int32) -> [UInt8]? {
    let message = [UInt8](unsafeUninitializedCapacity: SharedMemory.largestMessage) { room, count in
      count = max(0, recv(channel, room.baseAddress, room.count, 0))
    }
    return message.isEmpty ? nil : message
  }

  private func discardImage() {
    (picture, files, preview) = (.none, [], [])
    // Returns the memory of a large image to the system, because the next images may be small. Small amounts are
    // kept, because mapping them again page by page would take time for every photo.
    if memory > 16 << 20, mallinfo2().fordblks > 4 << 20 { malloc_trim(0) }
    memory = 0
  }

  // MARK: Steps

  private func reply(to step: DecoderRequest.Step) -> DecoderReply {
    if let task = step.task { begin(task) }
    let piece = Array(bytes.prefix(step.count))
    do throws(CodecError) {
      switch picture {
      case .none: return DecoderReply(.failed(.cutShort))
      case .decoding(let decoder): return decode(piece, step, decoder)
      case .gathering(var all, let image, let variants):
        picture = .none
        all += piece
        guard step.hasEnded else {
          picture = .gathering(all, image, variants)
          return DecoderReply(.needsBytes)
        }
        let rendering = StreamingRenderer().render(all, of: image, as: variants)
        picture = .rendering(rendering)
        return try render(rendering)
      case .rendering(let rendering): return try render(rendering)
      }
    } catch {
      discardImage()
      return DecoderReply(.failed(error))
    }
  }

  private func begin(_ task: DecoderRequest.Task) {
    discardImage()
    switch task {
    case .decode(let limits, let variants):
      self.variants = variants
      picture = .decoding(StreamingCodec().makeDecoder(limits: limits, variants: variants))
    case .render(let image, let count, let requests):
      var all: [UInt8] = []
      all.reserveCapacity(count)
      memory = count
      let variants = requests.map { request in
        request.variant(of: image.format, isTransparent: image.hasAlpha, formats: [.jpeg])
      }
      picture = .gathering(all, image, variants)
      reportLongestStep(StepTime.most(of: image, variants))
    }
  }

  /// Reports the limit before a step that may never end.
  private func reportLongestStep(_ longestStep: Duration) {
    let milliseconds = UInt32(min(longestStep / .milliseconds(1), 4e9))
    all.storeBytes(of: milliseconds, toByteOffset: SharedMemory.longestStep, as: UInt32.self)
  }

  private func decode(
    _ piece: [UInt8], _ step: DecoderRequest.Step, _ decoder: any ImageDecoder
  ) -> DecoderReply {
    if !piece.isEmpty { decoder.append(piece) }
    if step.hasEnded { decoder.finishInput() }
    switch step.preview {
    case .none: break
    case .begin: decoder.beginPreview()
    case .drop: decoder.discardPreview()
    }
    var reply = DecoderReply(.hasMore)
    do throws(CodecError) {
      try run(decoder, &reply)
    } catch {
      // The header precedes the error, and is reported before it.
      reply.outcome = .failed(error)
      discardImage()
    }
    return reply
  }

  private func run(
    _ decoder: any ImageDecoder, _ reply: inout DecoderReply
  ) throws(CodecError) {
    let end = ContinuousClock.now + SharedMemory.slice
    steps: while true {
      switch try decoder.step() {
      case .needsBytes, .again:
        reply.outcome = .needsBytes
        break steps
      case .hasMore:
        if ContinuousClock.now > end { break steps }
      case .header(let header):
        reply.header = header
        memory = header.decodingMemory
        reportLongestStep(StepTime.most(of: header, variants))
        if memory > SharedMemory.smallDecode { break steps }
      case .finished(let description):
        reply.outcome = .decoded(description)
        return finish(decoder.variants.map { $0.map(Result.success) }, &reply)
      }
      if addPreview(of: decoder, to: &reply) { break steps }
    }
    _ = addPreview(of: decoder, to: &reply)
    reply.hasMoreToShow = decoder.hasMoreToShow
  }

  /// - Returns: whether there is a new preview.
  private func addPreview(of decoder: any ImageDecoder, to reply: inout DecoderReply) -> Bool {
    guard reply.preview == nil, let made = decoder.takePreview() else { return false }
    preview = made.bytes
    reply.preview = DecoderReply.PreviewInfo(
      format: made.format, scan: made.scan, count: made.bytes.count)
    return true
  }

  private func render(_ rendering: any Rendering) throws(CodecError) -> DecoderReply {
    let end = ContinuousClock.now + SharedMemory.slice
    repeat {
      guard let made = try rendering.step() else { continue }
      var reply = DecoderReply(.rendered)
      finish(made.map { $0 }, &reply)
      return reply
    } while ContinuousClock.now < end
    return DecoderReply(.hasMore)
  }

  // MARK: Files

  private func finish(_ made: [Result<[UInt8], CodecError>?], _ reply: inout DecoderReply) {
    picture = .none
    files = made.map { (try? $0?.get()) ?? [] }
    reply.files = made.map { file in
      switch file {
      case nil: .missing
      case .failure(let error): .failed(error)
      case .success(let bytes): .made(count: bytes.count)
      }
    }
    let all = files.reduce(0) { $0 + $1.count }
    guard all <= results.count else { return }
    var place = 0
    for file in files {
      UnsafeMutableRawBufferPointer(rebasing: results[place...]).copyBytes(from: file)
      place += file.count
    }
    reply.areInMemory = true
    discardImage()
  }

  /// - Returns: how many bytes were copied to the memory.
  private func copyToMemory(_ number: Int, from offset: Int) -> Int {
    let file = number == SharedMemory.preview ? preview : files[safe: number] ?? []
    let piece = file.dropFirst(offset).prefix(results.count)
    results.copyBytes(from: piece)
    return piece.count
  }
}

extension Array {
  fileprivate subscript(safe place: Int) -> Element? {
    indices.contains(place) ? self[place] : nil
  }
}
