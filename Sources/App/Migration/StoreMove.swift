internal import Executors
internal import Jobs

/// Moves all that is kept, jobs and images, from one place to another.
///
/// Images go before what refers to them, under a reservation, and their digests are compared on the way; what refers to them
/// goes in batches, each a transaction that passes over what is there. So a move that was cut short, however it was, is begun
/// again, and goes on where it had come to. Nothing is taken from the source.
struct StoreMove: Sendable {
  /// Jobs and images that nobody works on.
  struct Source: Sendable {
    let records: any ExportedStore
    let images: any ImageStore
  }

  /// Where they go. Its services may be at work.
  struct Target: Sendable {
    let records: any ImportingStore
    let images: any ImageStore
    let spool: any ImageSpool
    /// Whether the source's images are these.
    let isSame: Bool
  }

  let source: Source
  let target: Target
  /// Told after each batch.
  let report: @Sendable (MoveTotals) -> Void
  /// Reads and writes files.
  private let disk = ThreadPool(name: "move", threads: 4)
  /// What is reserved is nobody else's for that long after the last word from here.
  private static let lease = Duration.seconds(60)
  /// Jobs or entries in a transaction, images under way at the same time, and a piece of one.
  private static let (batch, atOnce, piece) = (64, 8, 1 << 20)

  init(
    from source: Source, to target: Target, report: @escaping @Sendable (MoveTotals) -> Void
  ) {
    (self.source, self.target, self.report) = (source, target, report)
  }

  func run() async throws(StoreError) -> MoveTotals {
    // What the source's last run was at is queued again, as at its next start.
    while try await !source.records.recoverExpired(500).isEmpty {}
    let instance = try await target.records.register(for: Self.lease)
    let renewing = Task { [target] in
      while !Task.isCancelled {
        try? await Task.sleep(for: Self.lease / 4)
        // One that is over shows at the next batch.
        if !Task.isCancelled { _ = try? await target.records.renew(instance, for: Self.lease) }
      }
    }
    let result: Result<MoveTotals, StoreError>
    do throws(StoreError) { result = .success(try await moveAll(as: instance)) } catch {
      result = .failure(error)
    }
    renewing.cancel()
    await renewing.value
    do throws(StoreError) { try await target.records.retire(instance) } catch {
      if case .success = result { throw error }
    }
    return try result.get()
  }

  private func moveAll(as instance: Instance) async throws(StoreError) -> MoveTotals {
    var totals = MoveTotals()
    totals.expected = try await source.records.counts().jobs.values.reduce(0, +)
    // What answers comes before those who may be answered with it.
    try await moveEntries(as: instance, &totals)
    // What a batch counts comes with it, and its jobs are told apart by it.
    try await moveBatches(&totals)
    try await moveFinished(as: instance, &totals)
    try await moveQueue(as: instance, &totals)
    try await moveKeys(&totals)
    try await moveMessages(&totals)
    return totals
  }

  private func moveBatches(_ totals: inout MoveTotals) async throws(StoreError) {
    var last = Int64.min
    while true {
      let batches = try await source.records.batches(after: last, count: Self.batch)
      guard let number = batches.last?.number else { return }
      last = number
      let readable = totals.readable(batches)
      let new = try await target.records.take(readable)
      for found in batches {
        guard let batch = found.value, batch.counts.rejected > 0 else { continue }
        try await moveRejectedLines(of: batch.id, found.number, &totals)
      }
      totals.batches.count(readable.count, new: new)
      report(totals)
    }
  }

  private func moveRejectedLines(
    of batch: BatchID, _ number: Int64, _ totals: inout MoveTotals
  ) async throws(StoreError) {
    var last: Int64 = 0
    while true {
      let lines = try await source.records.rejectedLines(of: number, after: last, count: 512)
      guard let line = lines.last?.number else { return }
      last = line
      try await target.records.take(totals.readable(lines), of: batch)
    }
  }

  private func moveFinished(
    as instance: Instance, _ totals: inout MoveTotals
  ) async throws(StoreError) {
    // Before any moment none has expired: what has is the target's to forget.
    var query = JobQuery(owner: nil, now: Timestamp(milliseconds: .min), limit: Self.batch)
    query.phases = [.success, .failure, .cancelled]
    while true {
      let page = try await source.records.jobs(query)
      try await move(page.jobs, as: instance, &totals)
      // Behind those that can't be read, too: a page may have no others.
      guard page.hasMore, let last = page.last ?? page.jobs.last?.id else { return }
      query.before = last
    }
  }

  private func moveQueue(
    as instance: Instance, _ totals: inout MoveTotals
  ) async throws(StoreError) {
    let ids = try await source.records.queueOrder()
    for start in stride(from: 0, to: ids.count, by: Self.batch) {
      var jobs: [Job] = []
      for id in ids[start..<min(ids.count, start + Self.batch)] {
        do throws(StoreError) {
          if let job = try await source.records.job(id) { jobs.append(job) }
        } catch {
          // It is counted as missing at the end; its neighbours are none the worse for it.
          guard case .unreadable = error else { throw error }
        }
      }
      try await move(jobs, as: instance, &totals)
    }
  }

  private func move(
    _ jobs: [Job], as instance: Instance, _ totals: inout MoveTotals
  ) async throws(StoreError) {
    guard !jobs.isEmpty else { return }
    let wanted = jobs.flatMap { job in job.keptImages.map { WantedImage(name: $0, holder: job.id) }
    }
    let images = try await provide(wanted, as: instance, &totals)
    let new = try await target.records.take(jobs, images, for: instance)
    totals.jobs.count(jobs.count, new: new)
    report(totals)
  }

  private func moveEntries(
    as instance: Instance, _ totals: inout MoveTotals
  ) async throws(StoreError) {
    var last = Int64.min
    while true {
      let found = try await source.records.entries(after: last, count: Self.batch)
      guard let number = found.last?.number else { return }
      last = number
      let entries = totals.readable(found)
      // A name that nobody else uses; the moment tells nothing.
      let holder = JobID(at: Timestamp(milliseconds: 0))
      let wanted = entries.map {
        WantedImage(name: MovedImage(digest: $0.image, bytes: $0.bytes), holder: holder)
      }
      let images = try await provide(wanted, as: instance, &totals)
      let new = try await target.records.take(entries, images, for: instance)
      try await target.records.release(holder)
      let left = entries.count { images.lost.contains($0.image) }
      totals.entries.count(entries.count - left, new: new)
      report(totals)
    }
  }

  /// After their jobs, without which a message that has been sent is forgotten.
  private func moveMessages(_ totals: inout MoveTotals) async throws(StoreError) {
    var last = Int64.min
    while true {
      let found = try await source.records.messages(after: last, count: 512)
      guard let number = found.last?.number else { return }
      last = number
      let messages = totals.readable(found)
      let new = try await target.records.take(messages)
      totals.messages.count(messages.count, new: new)
      report(totals)
    }
  }

  private func moveKeys(_ totals: inout MoveTotals) async throws(StoreError) {
    var last = Int64.min
    while true {
      let found = try await source.records.keys(after: last, count: 512)
      guard let number = found.last?.number else { return }
      last = number
      let keys = totals.readable(found)
      totals.keys.count(keys.count, new: try await target.records.take(keys))
      report(totals)
    }
  }
}

// Images.
extension StoreMove {
  fileprivate struct WantedImage: Sendable {
    let name: MovedImage
    let holder: JobID
  }

  private enum Provided: Sendable {
    case embedded(EmbeddedImage)
    case put
    /// The target has it in its place.
    case found
    case lost
  }

  /// Sees to it that the images are in the target, so that it may refer to them.
  fileprivate func provide(
    _ wanted: [WantedImage], as instance: Instance, _ totals: inout MoveTotals
  ) async throws(StoreError) -> ImportedImages {
    let byName = Dictionary(wanted.map { ($0.name.digest, $0) }) { first, _ in first }
    var missing = try await target.records.unreferenced(Array(byName.keys)).compactMap {
      byName[$0]
    }
    var images = ImportedImages()
    while !missing.isEmpty {
      let some = missing.suffix(Self.atOnce)
      missing.removeLast(some.count)
      for (image, provided) in try await provide(Array(some), as: instance) {
        switch provided {
        case .embedded(let embedded):
          images.embedded.append(embedded)
          totals.move(image.bytes)
        case .put: totals.move(image.bytes)
        case .found: totals.images.found += 1
        case .lost:
          images.lost.insert(image.digest)
          totals.lost.insert(image.digest)
        }
      }
    }
    return images
  }

  private struct Outcome: Sendable {
    let image: MovedImage
    let result: Result<Provided, StoreError>
  }

  // The tasks return a struct, not a tuple. With -O, Swift 6.3.1 miscompiles a task's closure that returns a tuple from
  // inside do/catch where an element stands before an `await`:
  //
  //     group.addTask { () -> (Name, Result<Value, E>) in
  //       do throws(E) { return (name, .success(try await load())) } catch { return (name, .failure(error)) }
  //     }
  //
  // The element before the `await` (`name`) is lost: the parent reads uninitialized memory, and crashes where it is a
  // reference. Task groups and `Task` are affected alike, typed throws and untyped, at -O and -Osize. It is correct at
  // -Onone, with a struct, with the `await` as the first element or in a `let` before, and without the `catch`.
  // ArchitectureTests refuses such tuples in all sources.
  private func provide(
    _ wanted: [WantedImage], as instance: Instance
  ) async throws(StoreError) -> [(MovedImage, Provided)] {
    let outcomes = await withTaskGroup(of: Outcome.self) { group in
      for image in wanted {
        group.addTask {
          do throws(StoreError) {
            let provided = try await provide(image, as: instance)
            return Outcome(image: image.name, result: .success(provided))
          } catch { return Outcome(image: image.name, result: .failure(error)) }
        }
      }
      var outcomes: [Outcome] = []
      for await outcome in group { outcomes.append(outcome) }
      return outcomes
    }
    var all: [(MovedImage, Provided)] = []
    for outcome in outcomes { all.append((outcome.image, try outcome.result.get())) }
    return all
  }

  private func provide(
    _ wanted: WantedImage, as instance: Instance
  ) async throws(StoreError) -> Provided {
    let image = wanted.name
    guard let bytes = try await source.images.open(image.digest), bytes.count == image.bytes else {
      return .lost
    }
    if image.bytes <= target.records.largestEmbedded {
      let content = await disk.run { bytes.read(at: 0, count: bytes.count) }
      return .embedded(EmbeddedImage(digest: image.digest, content: content))
    }
    let name = try await reserve(wanted, as: instance)
    if target.isSame { return .found }
    try await put(bytes, as: name)
    return .put
  }

  private func reserve(
    _ wanted: WantedImage, as instance: Instance
  ) async throws(StoreError) -> ImageName {
    let image = wanted.name
    while true {
      let reservation = try await target.records.reserve(
        image.digest, bytes: image.bytes, as: wanted.holder, of: instance, limit: .max)
      switch reservation {
      case .reserved(let name, evicted: _): return name
      case .full, .noRoomYet: throw .full
      // A service is just removing equal bytes.
      case .pendingDeletion: try? await Task.sleep(for: .milliseconds(50))
      }
    }
  }

  private func put(_ bytes: StoredBytes, as name: ImageName) async throws(StoreError) {
    let staged = try await target.spool.stage()
    let found = try await disk.run { () -> Result<ImageDigest, StoreError> in
      do throws(StoreError) {
        for start in stride(from: 0, to: bytes.count, by: Self.piece) {
          try staged.write(bytes.read(at: start, count: min(Self.piece, bytes.count - start)))
        }
        return .success(staged.finish())
      } catch { return .failure(error) }
    }.get()
    guard found == name.digest else {
      throw .unavailable(detail: "image \(name.digest.hex) changed while it was read")
    }
    try await target.images.put(staged, as: name)
  }
}

/// The name of an image that is kept, with its size.
struct MovedImage: Sendable, Hashable {
  let digest: ImageDigest
  let bytes: Int
}

extension Job {
  /// What stores keep for it.
  fileprivate var keptImages: [MovedImage] {
    var images: [MovedImage] = []
    if let image = keptImage {
      images.append(MovedImage(digest: image.keptDigest, bytes: image.keptBytes))
    }
    // What the client sent is dropped where the result is all that is wanted.
    if let source = capturedSource, !(submission.dropsOriginal && phase == .success) {
      images.append(MovedImage(digest: source.digest, bytes: source.bytes))
    }
    return images
  }
}
