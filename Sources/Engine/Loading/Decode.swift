internal import Jobs
internal import Synchronization

/// One decode under way, with its share of the memory.
///
/// It goes along with the bytes as they come. Where its share can't be had, or held on to, while they do, it is put off until
/// they are all there: they are staged, and decoded from there. Whoever waits for a share holds none, and few bytes.
struct Decode {
  private let makeDecoder: () -> any ImageDecoder
  private var decoder: any ImageDecoder
  private let memory: DecodeMemory
  private let load: Load
  private let completer: JobCompleter
  private var share: DecodeMemory.Share?
  /// By its header; before there is one, by the bytes that its decoder was given.
  private var neededMemory = 0
  private var hasHeader = false
  /// Bytes that the decoder was given: those before them are not decoded again.
  private var given = 0
  private var isPutOff = false
  /// Whether all bytes are there.
  private var isWhole = false
  private var makesPreviews: Bool
  private var pace = PreviewThrottle(from: .now)
  /// When the preview under way was begun, by the computing time.
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

  /// The variants that it made on its way.
  var variants: [[UInt8]?] { decoder.variants }

  mutating func proceed(with piece: [UInt8]) async throws(JobFailure) {
    if share != nil, !memory.isSmall(neededMemory), memory.isWanted { beginAgainLater() }
    give(piece)
    guard !isPutOff else { return }
    _ = try await steps()
  }

  /// They are decoded together with their end: a small picture in one step. No preview begins any more, and one under way is
  /// dropped.
  mutating func take(last piece: [UInt8]) {
    isWhole = true
    stopPreviews()
    give(piece)
  }

  private mutating func give(_ piece: [UInt8]) {
    if !isPutOff, !hasHeader { hold(unread: given + piece.count) }
    guard !isPutOff else { return }
    given += piece.count
    decoder.append(piece)
  }

  /// Bytes that a decoder may have without a share before it has told a header.
  static let heldFreely = 1 << 20
  /// No format's reader holds more of them: the others' headers come first, or it takes the file for none (`AVIF_MAX_UNPARSED`).
  private static let mostUnread = 64 << 20

  /// Some formats' headers may be at a file's end, and all before them is held until then.
  private static func memory(unread count: Int) -> Int {
    // In a buffer that grows by half, into which it is copied.
    2 * min(count, mostUnread)
  }

  private mutating func hold(unread count: Int) {
    let needed = Self.memory(unread: count)
    guard count > Self.heldFreely, needed > neededMemory else { return }
    share = nil
    if !takeShare(of: needed) { beginAgainLater() }
  }

  /// Without waiting.
  private mutating func takeShare(of bytes: Int) -> Bool {
    neededMemory = bytes
    share = isWhole ? memory.shareAtOnce(bytes) : memory.shareWhileLoading(bytes)
    return share != nil
  }

  private mutating func stopPreviews() {
    makesPreviews = false
    previewBegan = nil
    decoder.dropPreview()
  }

  private mutating func beginAgainLater() {
    stopPreviews()
    isPutOff = true
    given = 0
    decoder = makeDecoder()
    share = nil
  }

  /// The next bytes. While they are waited for a preview may be made: so the final picture waits for none.
  mutating func piece(of source: any ImageBytes) async throws(JobFailure) -> [UInt8]? {
    guard makesPreviews, previewBegan == nil, decoder.hasMoreToShow else {
      return try await Self.next(of: source)
    }
    return try await piece(of: source, previewAt: pace.due)
  }

  static func next(of source: (any ImageBytes)?) async throws(JobFailure) -> [UInt8]? {
    do throws(FetchError) { return try await source?.next() } catch { throw .fetch(error) }
  }

  /// - Parameter staged: has all bytes.
  mutating func finish(from staged: any StagedImage) async throws(JobFailure) -> ImageDescription {
    isWhole = true
    while true {
      if isPutOff { try await catchUp(from: staged) }
      if !isPutOff {
        decoder.end()
        if let description = try await steps() { return description }
        // A decoder that still wants bytes after the end breaks its contract; the image is then cut.
        if !isPutOff { throw .codec(.cutShort) }
      }
    }
  }

  /// As far as its header, where that is put off once more.
  private mutating func catchUp(from staged: any StagedImage) async throws(JobFailure) {
    let bytes: StoredBytes
    do throws(StoreError) { bytes = try staged.bytes() } catch { throw JobFailure(error) }
    if !hasHeader { neededMemory = Self.memory(unread: bytes.count) }
    await awaitShare()
    if share == nil { throw .fetch(.cancelled) }
    isPutOff = false
    let rest = StoredImageReader(bytes, from: given)
    while !isPutOff, let piece = try await Self.next(of: rest) {
      give(piece)
      _ = try await steps()
    }
  }

  /// Lets other images have a turn between the slices, each of some 10 ms.
  private mutating func steps() async throws(JobFailure) -> ImageDescription? {
    while true {
      switch try slice() {
      case .needsBytes: return nil
      case .finished(let description): return description
      case .hasMore: time += await decoder.pause()
      case .header(let header):
        await take(header)
        if isPutOff { return nil }
      }
      if Task.isCancelled { throw .fetch(.cancelled) }
    }
  }

  private mutating func take(_ header: ImageHeader) async {
    load.received(header)
    await completer.completeEarlyEnds(of: load)
    let isFirst = !hasHeader
    hasHeader = true
    // Another decoder than the first may tell of more.
    guard share == nil || header.decodingMemory > neededMemory else { return }
    share = nil
    if takeShare(of: header.decodingMemory) { return }
    // Once: one that tells of ever more would begin again for ever.
    if isFirst, given > Self.heldFreely { return beginAgainLater() }
    if isWhole { return await awaitShare() }
    isPutOff = true
    stopPreviews()
  }

  private mutating func awaitShare() async {
    // The origin isn't to blame for this wait.
    load.pause()
    share = await memory.share(neededMemory)
    load.resume()
  }

  private mutating func slice() throws(JobFailure) -> DecodeStep {
    let start = ContinuousClock.now
    let step: DecodeStep
    do throws(CodecError) {
      defer { time += ContinuousClock.now - start }
      step = try decoder.step()
    } catch { throw .codec(error) }
    takePreview(after: step)
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
      _ = isolation  // whoever captures it stays on it: a preview computes
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
    // What a step throws it throws again when the next bytes are there.
    while previewBegan != nil, !arrival.hasHappened, (try? slice()) == .hasMore {
      time += await decoder.pause()
    }
  }

  private mutating func takePreview(after step: DecodeStep) {
    guard let began = previewBegan else { return }
    let preview = decoder.takePreview()
    // One that isn't there when more bytes are wanted has failed.
    if preview == nil, step == .hasMore { return }
    previewBegan = nil
    pace.made(by: .now, computing: time - began)
    if let preview { load.tracker.made(preview) }
  }
}

/// Whether the next bytes are there.
private final class Arrival: Sendable {
  private let flag = Atomic(false)
  var hasHappened: Bool { flag.load(ordering: .acquiring) }
  func happened() { flag.store(true, ordering: .releasing) }
}

/// When the next preview of a load may be begun.
///
/// Half a second lies between two, and between the first byte and the first one: what comes faster needs none. One that
/// was long in the making is followed by a pause of eight times as long, so that previews never take more than a ninth
/// of a thread however large the picture is and however many scans it has.
struct PreviewThrottle {
  typealias Instant = ContinuousClock.Instant

  static let interval = Duration.milliseconds(500)
  static let pausePerWork = 8

  /// Not before this moment.
  private(set) var due: Instant

  init(from start: Instant) { due = start + Self.interval }

  /// One was finished, or given up.
  mutating func made(by end: Instant, computing work: Duration) {
    due = end + max(Self.interval, work * Self.pausePerWork)
  }
}

/// When an image was last decoded to its end: while they are, nobody has to try whether they can be.
final class LastDecode: Sendable {
  private let last = Mutex(ContinuousClock.now)

  func note() { last.withLock { $0 = .now } }

  var moment: ContinuousClock.Instant { last.withLock { $0 } }
}
