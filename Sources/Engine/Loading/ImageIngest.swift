internal import Jobs
internal import Logging
internal import Synchronization

/// Receives an image: each piece of bytes is hashed, written to the spool and decoded as it arrives.
///
/// Input: pieces of bytes. Output: an image that was decoded to its end and staged. Runs on the decode threads; hashing,
/// writing and decoding of one piece follow each other without a change of thread.
struct ImageIngest: Sendable {
  let codec: any ImageCodec
  let limits: DecodeLimits
  let memory: DecodeMemory
  let staging: ImageStaging
  let completer: JobCompleter
  let lastDecode: LastDecode

  /// An image that was decoded to its end. It is staged, and not yet published.
  struct Ingested: Sendable {
    var description: ImageDescription
    var digest: ImageDigest
    var bytes: Int
    var staged: any StagedImage
    /// The variants that the decode should have made.
    var wanted: [VariantRequest]
    /// The variants that the decode made.
    var variants: [VariantRequest: [UInt8]]
  }

  /// Sets the expected number of bytes, and fails the jobs whose limit is lower.
  func announce(bytes count: Int, of load: Load) async {
    load.tracker.expect(total: count)
    load.received(bytes: count)
    await completer.completeEarlyEnds(of: load)
  }

  /// Receives the bytes of an image until its end.
  /// - Parameters:
  ///   - source: the bytes, or those that follow `kept`.
  ///   - kept: bytes that the stage already has; they are only decoded.
  ///   - load: receives the header and the byte count. Its cancellation stops the ingest.
  func ingest(
    _ source: any ImageBytes, after kept: (any ImageBytes)? = nil, to staged: any StagedImage,
    for load: Load
  ) async throws(JobFailure) -> Ingested {
    do throws(JobFailure) {
      return try await decode(source, after: kept, to: staged, for: load)
    } catch {
      if case .codec(.crashed(let how)) = error { logCrash(how, of: staged) }
      throw error
    }
  }

  /// Logs the crash with the digest of the received bytes, by which an operator finds them.
  private func logCrash(_ how: String, of staged: any StagedImage) {
    staging.log.warning(
      "an image crashed its decoder",
      metadata: ["how": "\(how)", "sha256": "\(staged.finish().hex)"])
  }

  private func decode(
    _ source: any ImageBytes, after kept: (any ImageBytes)?, to staged: any StagedImage,
    for load: Load
  ) async throws(JobFailure) -> Ingested {
    let wanted = load.wantedVariants
    var decode = Decode(memory: memory, load: load, completer: completer) {
      codec.makeDecoder(limits: limits, variants: wanted)
    }
    var count = 0
    load.stages?.begin(.decode)
    while let piece = try await Decode.next(of: kept) {
      count += piece.count
      try await decode.proceed(with: piece)
    }
    while let piece = try await decode.piece(of: source) {
      count += piece.count
      do throws(StoreError) { try staged.write(piece) } catch { throw JobFailure(error) }
      if load.tracker.isComplete(with: count) {
        decode.append(last: piece)
      } else {
        try await decode.proceed(with: piece)
      }
      load.tracker.advance(to: count, decodeTime: decode.time)
      load.received(bytes: max(count, source.codedCount))
    }
    // Bytes after the end of the content coding count too.
    load.received(bytes: source.codedCount)
    guard count > 0 else { throw .fetch(.noData) }
    load.tracker.bodyReceived()
    load.stages?.end(.fetch)
    let description = try await decode.finish(from: staged)
    load.stages?.end(.decode)
    lastDecode.record()
    load.tracker.advance(to: count, decodeTime: decode.time)
    let made = zip(wanted, decode.variants).compactMap { request, file in
      file.map { (request, $0) }
    }
    return Ingested(
      description: description, digest: staged.finish(), bytes: count, staged: staged,
      wanted: wanted, variants: Dictionary(made) { first, _ in first })
  }
}

/// One running decode, with its share of the decode memory.
///
/// It decodes bytes as they arrive. In three cases it is deferred: there is not enough memory, it must give its memory
/// back, or its decoder's process failed and needs the bytes again. A deferred decode starts when all bytes are staged,
/// and reads them from there. While it waits for memory, it holds no memory and few bytes.
struct Decode {
  private let makeDecoder: () -> any ImageDecoder
  private var decoder: any ImageDecoder
  private let memory: DecodeMemory
  private let load: Load
  private let completer: JobCompleter
  private var share: DecodeMemory.MemoryPermit?
  /// The bytes of memory it needs: by the image's header, or before it, by the bytes given to the decoder.
  private var neededMemory = 0
  private var hasHeader = false
  /// The number of bytes given to the decoder.
  private var appendedBytes = 0
  private var isDeferred = false
  /// Whether all bytes have arrived.
  private var isComplete = false
  private var makesPreviews: Bool
  private var pace = PreviewThrottle(from: .now)
  /// The computing time at which the current preview was started; nil if none is being made.
  private var previewBegan: Duration?
  /// Computing time so far.
  private(set) var time: Duration = .zero

  init(
    memory: DecodeMemory, load: Load, completer: JobCompleter,
    _ makeDecoder: @escaping () -> any ImageDecoder
  ) {
    self.makeDecoder = makeDecoder
    decoder = makeDecoder()
    self.memory = memory
    self.load = load
    self.completer = completer
    makesPreviews = !load.isBackground
  }

  /// The variants that the decoder made.
  var variants: [[UInt8]?] { decoder.variants }

  mutating func proceed(with piece: [UInt8]) async throws(JobFailure) {
    if share != nil, !memory.isSmall(neededMemory), memory.isWanted {
      deferDecoding(by: makeDecoder())
    }
    append(piece)
    guard !isDeferred else { return }
    _ = try await steps()
  }

  /// Appends the last piece. It is decoded together with the end of the image, so a small image takes one step. No more
  /// previews are made.
  mutating func append(last piece: [UInt8]) {
    isComplete = true
    stopPreviews()
    append(piece)
  }

  private mutating func append(_ piece: [UInt8]) {
    if !isDeferred, !hasHeader { reserve(unread: appendedBytes + piece.count) }
    guard !isDeferred else { return }
    appendedBytes += piece.count
    decoder.append(piece)
  }

  /// Bytes that a decoder may hold without a share of the memory before it has read the header.
  static let freeBytes = 1 << 20
  /// The most bytes that any format's reader holds before it has read the header (`AVIF_MAX_UNPARSED`).
  private static let mostUnread = 64 << 20

  /// Some formats have their header at the end of the file, and hold all bytes before it.
  private static func memory(unread count: Int) -> Int {
    // The buffer grows by half, and copies its content.
    2 * min(count, mostUnread)
  }

  private mutating func reserve(unread count: Int) {
    let needed = Self.memory(unread: count)
    guard count > Self.freeBytes, needed > neededMemory else { return }
    share = nil
    if !reserve(needed) { deferDecoding(by: makeDecoder()) }
  }

  /// Reserves memory without waiting; false if there is too little.
  private mutating func reserve(_ bytes: Int) -> Bool {
    neededMemory = bytes
    share = isComplete ? memory.reserveNow(bytes) : memory.reserveWhileDownloading(bytes)
    return share != nil
  }

  private mutating func stopPreviews() {
    makesPreviews = false
    previewBegan = nil
    decoder.discardPreview()
  }

  /// - Parameter decoder: gets all bytes, from the first one.
  private mutating func deferDecoding(by decoder: any ImageDecoder) {
    stopPreviews()
    isDeferred = true
    appendedBytes = 0
    self.decoder = decoder
    share = nil
  }

  /// Returns the next bytes. A preview is made only while waiting for them, so that it never delays the final image.
  mutating func piece(of source: any ImageBytes) async throws(JobFailure) -> [UInt8]? {
    guard makesPreviews, previewBegan == nil, decoder.hasMoreToShow else {
      return try await Self.next(of: source)
    }
    return try await piece(of: source, previewAt: pace.due)
  }

  static func next(of source: (any ImageBytes)?) async throws(JobFailure) -> [UInt8]? {
    do throws(FetchError) { return try await source?.next() } catch { throw .fetch(error) }
  }

  /// Decodes to the end of the image.
  /// - Parameter staged: has all bytes.
  mutating func finish(from staged: any StagedImage) async throws(JobFailure) -> ImageDescription {
    isComplete = true
    while true {
      if isDeferred { try await decodeStaged(staged) }
      if !isDeferred {
        decoder.finishInput()
        if let description = try await steps() { return description }
        // A decoder that still wants bytes after the end breaks its contract; the image is then cut.
        if !isDeferred { throw .codec(.cutShort) }
      }
    }
  }

  /// Decodes the staged bytes of a deferred decode; only up to the header if the decode must be deferred again.
  private mutating func decodeStaged(_ staged: any StagedImage) async throws(JobFailure) {
    let bytes: StoredBytes
    do throws(StoreError) { bytes = try staged.bytes() } catch { throw JobFailure(error) }
    if !hasHeader { neededMemory = Self.memory(unread: bytes.count) }
    await awaitShare()
    if share == nil { throw .fetch(.cancelled) }
    isDeferred = false
    let rest = StoredImageReader(bytes, from: appendedBytes)
    while !isDeferred, let piece = try await Self.next(of: rest) {
      append(piece)
      _ = try await steps()
    }
  }

  /// Decodes in slices of about 10 ms, and lets other images decode between them.
  private mutating func steps() async throws(JobFailure) -> ImageDescription? {
    while true {
      switch try slice() {
      case .needsBytes, .again: return nil
      case .finished(let description): return description
      case .hasMore: time += await decoder.pause()
      case .header(let header):
        await receive(header)
        if isDeferred { return nil }
      }
      if Task.isCancelled { throw .fetch(.cancelled) }
    }
  }

  private mutating func receive(_ header: ImageHeader) async {
    load.received(header)
    await completer.completeEarlyEnds(of: load)
    let isFirst = !hasHeader
    hasHeader = true
    // A second decoder may report more memory than the first.
    guard share == nil || header.decodingMemory > neededMemory else { return }
    share = nil
    if reserve(header.decodingMemory) { return }
    // Only once: a decoder that reports more memory each time would restart forever.
    if isFirst, appendedBytes > Self.freeBytes { return deferDecoding(by: makeDecoder()) }
    if isComplete { return await awaitShare() }
    isDeferred = true
    stopPreviews()
  }

  private mutating func awaitShare() async {
    // This wait does not count against the jobs' timeouts.
    load.pause()
    share = await memory.reserve(neededMemory)
    load.resume()
  }

  private mutating func slice() throws(JobFailure) -> DecodeStep {
    let start = ContinuousClock.now
    let step: DecodeStep
    do throws(CodecError) {
      defer { time += ContinuousClock.now - start }
      step = try decoder.step()
    } catch { throw .codec(error) }
    publishPreview(after: step)
    if step == .again { deferDecoding(by: decoder) }
    return step
  }
}

// Previews.
extension Decode {
  private enum Event: Sendable {
    case piece(Result<[UInt8]?, JobFailure>)
    case previewIsDue
  }

  private mutating func piece(
    of source: any ImageBytes, previewAt due: ContinuousClock.Instant,
    isolation: isolated (any Actor)? = #isolation
  ) async throws(JobFailure) -> [UInt8]? {
    let piece = await withTaskGroup(of: Event.self) { group -> Result<[UInt8]?, JobFailure>? in
      _ = isolation  // keeps the closure on this actor: a preview computes
      let arrival = Arrival()
      group.addTask {
        defer { arrival.happened() }
        do throws(JobFailure) { return .piece(.success(try await Self.next(of: source))) } catch {
          return .piece(.failure(error))
        }
      }
      group.addTask {
        try? await Task.sleep(until: due, clock: .continuous)
        return .previewIsDue
      }
      while let event = await group.next() {
        switch event {
        case .piece(let piece):
          group.cancelAll()
          return piece
        case .previewIsDue: await makePreview(until: arrival)
        }
      }
      return nil
    }
    guard let piece else { return nil }
    return try piece.get()
  }

  /// Goes on with it when the next bytes have arrived, unless they are the last.
  private mutating func makePreview(until arrival: Arrival) async {
    guard !Task.isCancelled, !arrival.hasHappened else { return }
    decoder.beginPreview()
    previewBegan = time
    // An error that a step throws is thrown again when the next bytes are decoded.
    while previewBegan != nil, !arrival.hasHappened, (try? slice()) == .hasMore {
      time += await decoder.pause()
    }
  }

  private mutating func publishPreview(after step: DecodeStep) {
    guard let began = previewBegan else { return }
    let preview = decoder.takePreview()
    // If the decoder wants more bytes and there is no preview, the preview has failed.
    if preview == nil, step == .hasMore { return }
    previewBegan = nil
    pace.recordPreview(at: .now, computing: time - began)
    if let preview { load.tracker.publish(preview) }
  }
}

/// Whether the next bytes have arrived.
private final class Arrival: Sendable {
  private let flag = Atomic(false)
  var hasHappened: Bool { flag.load(ordering: .acquiring) }
  func happened() { flag.store(true, ordering: .releasing) }
}

/// Decides when a load may make its next preview.
///
/// The first one is made half a second after the first byte, and each next one half a second after the one before. After
/// a slow preview the pause is eight times its computing time. So previews never use more than a ninth of a thread.
struct PreviewThrottle {
  typealias Instant = ContinuousClock.Instant

  static let interval = Duration.milliseconds(500)
  static let pausePerWork = 8

  /// The earliest start of the next preview.
  private(set) var due: Instant

  init(from start: Instant) { due = start + Self.interval }

  /// Records that a preview was finished or abandoned.
  mutating func recordPreview(at end: Instant, computing work: Duration) {
    due = end + max(Self.interval, work * Self.pausePerWork)
  }
}

/// The moment at which an image was last decoded to its end. The health check skips its own test decode while it is recent.
final class LastDecode: Sendable {
  private let last = Mutex(ContinuousClock.now)

  func record() { last.withLock { $0 = .now } }

  var moment: ContinuousClock.Instant { last.withLock { $0 } }
}

/// Stages an image's bytes while it is loaded, and stores them when the load ends.
struct ImageStaging: Sendable {
  let spool: any ImageSpool
  let images: any ImageStore
  let keeper: ImageLifecycle
  /// The largest image, in bytes, that is stored in the job store instead of the image store.
  let largestEmbedded: Int
  let log: Logger

  /// Opens a stage, where bytes are written and hashed.
  func stage(for job: JobID) async throws(JobFailure) -> any StagedImage {
    try await storing(for: job) { () async throws(StoreError) in try await spool.stage() }
  }

  /// Opens the stored image that a job refers to. Throws `.imageGone` if it is lost.
  func open(_ digest: ImageDigest) async throws(FinishError) -> StoredBytes {
    do throws(StoreError) {
      if let stored = try await images.open(digest) { return stored }
    } catch {
      log.error("failed to read a stored image", metadata: ["error": "\(error)"])
      throw .failed(JobFailure(error))
    }
    throw .imageGone
  }

  /// Stores an image beyond its load; if its jobs drop it, until their variants are made. A small image goes into the
  /// transaction that ends the jobs. An image of a background load, which ends no jobs, is published.
  func keep(
    _ ingested: ImageIngest.Ingested, in loaded: inout LoadedImage, for load: Load
  ) async throws(JobFailure) {
    (loaded.wanted, loaded.variants) = (ingested.wanted, ingested.variants)
    if load.needsLeaderVariantsOnly, load.wantedVariants.allSatisfy({ loaded.variants[$0] != nil })
    {
      loaded.isAvailable = false
      // An image that the load has reserved before is expected in a file, so it is not embedded. An image that will be
      // dropped is not embedded either, because a deleted file frees its space immediately.
    } else if !load.isBackground, load.reservation == nil, !load.dropsOriginal,
      let content = ingested.staged.content, content.count <= largestEmbedded
    {
      loaded.embedded = EmbeddedImage(digest: ingested.digest, content: content)
    } else {
      try await publish(
        ingested.staged, ingested.digest, bytes: ingested.bytes, as: load.reserving(),
        for: load.leader.id)
    }
  }

  /// Makes a staged image durable. `holder` reserves it.
  func publish(
    _ staged: any StagedImage, _ digest: ImageDigest, bytes: Int, as holder: JobID, for job: JobID
  ) async throws(JobFailure) {
    let isKept = try await storing(for: job) { () async throws(StoreError) in
      try await keeper.save(staged, digest, bytes: bytes, as: holder, limit: keeper.limit)
    }
    guard isKept else { throw .fetch(.cancelled) }
  }

  private func storing<Value>(
    for job: JobID, _ body: () async throws(StoreError) -> Value
  ) async throws(JobFailure) -> Value {
    do throws(StoreError) { return try await body() } catch {
      log.error(
        "failed to store an image", metadata: ["job": "\(job)", "error": "\(error)"])
      throw JobFailure(error)
    }
  }
}

extension JobFailure {
  init(_ error: StoreError) {
    switch error {
    case .full: self = .storageFull
    case .leaseLost, .unavailable, .unreadable: self = .internal
    }
  }
}

extension ImageStaging {
  /// Stores the variants of a job in one file, one after the other.
  /// - Parameter holder: returns the ID that reserves the file. Called only for a bundle that is not embedded.
  func keepBundle(
    of rendered: [RenderedVariant], mayEmbed: Bool = true, as holder: () -> JobID, for job: JobID
  ) async throws(JobFailure) -> KeptBundle {
    let count = rendered.reduce(0) { $0 + $1.bytes.bytes.count }
    if mayEmbed, count <= largestEmbedded {
      let content = rendered.flatMap { $0.bytes.bytes.read(at: 0, count: $0.bytes.bytes.count) }
      let digest = ImageDigest(of: content)
      return KeptBundle(
        bundle: VariantBundle(digest: digest, bytes: content.count),
        embedded: EmbeddedImage(digest: digest, content: content))
    }
    let staged = try await stage(for: job)
    for variant in rendered { try copy(variant.bytes.bytes, to: staged) }
    let digest = staged.finish()
    try await publish(staged, digest, bytes: count, as: holder(), for: job)
    return KeptBundle(bundle: VariantBundle(digest: digest, bytes: count))
  }

  private func copy(_ bytes: StoredBytes, to staged: any StagedImage) throws(JobFailure) {
    var offset = 0
    while offset < bytes.count {
      let piece = bytes.read(at: offset, count: 1 << 20)
      guard !piece.isEmpty else { throw .internal }
      do throws(StoreError) { try staged.write(piece) } catch { throw JobFailure(error) }
      offset += piece.count
    }
  }
}

/// A stored bundle of variants, which replaces the image of jobs with `"original": "drop"`.
struct KeptBundle: Sendable {
  let bundle: VariantBundle
  /// The bytes of a small bundle, which the transaction that ends the jobs stores; nil for a large one.
  var embedded: EmbeddedImage?
}
