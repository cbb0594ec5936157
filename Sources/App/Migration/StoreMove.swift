internal import Executors
internal import Jobs

/// Copies all jobs, images and other records from one store to another.
///
/// Images are copied before the records that refer to them. Each is protected by a reservation, and its digest is
/// verified. Records are copied in batches. Each batch is one transaction, which skips records that the target already
/// has. So an interrupted move can be started again and continues. Nothing is deleted from the source.
struct StoreMove: Sendable {
  /// The source. No service may use it during the move.
  struct Source: Sendable {
    let records: any ExportedStore
    let images: any ImageStore
  }

  /// The target. Services may use it during the move.
  struct Target: Sendable {
    let records: any ImportingStore
    let images: any ImageStore
    let spool: any ImageSpool
    /// Whether the source uses the same image files, so that no bytes have to be copied.
    let isSame: Bool
  }

  let source: Source
  let target: Target
  /// Called after each batch.
  let report: @Sendable (MoveTotals) -> Void
  /// Reads and writes files.
  private let disk = ThreadPool(name: "move", threads: 4)
  /// How long reservations last after the last renewal.
  private static let lease = Duration.seconds(60)
  /// Records per transaction, images copied concurrently, and bytes per read.
  private static let (batch, concurrency, piece) = (64, 8, 1 << 20)

  init(
    from source: Source, to target: Target, report: @escaping @Sendable (MoveTotals) -> Void
  ) {
    (self.source, self.target, self.report) = (source, target, report)
  }

  func run() async throws(StoreError) -> MoveTotals {
    // Requeue the jobs that were running when the source's service stopped, as its next start would.
    while try await !source.records.recoverExpired(500).isEmpty {}
    let instance = try await target.records.register(for: Self.lease)
    let renewing = Task { [target] in
      while !Task.isCancelled {
        try? await Task.sleep(for: Self.lease / 4)
        // If the lease has expired, the next batch fails.
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
    // Cache entries first, because jobs may be answered from them.
    try await moveEntries(as: instance, &totals)
    // A batch is moved with its counts. Its jobs refer to it, so they follow.
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
      let new = try await target.records.importBatches(readable)
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
      try await target.records.importRejectedLines(totals.readable(lines), of: batch)
    }
  }

  private func moveFinished(
    as instance: Instance, _ totals: inout MoveTotals
  ) async throws(StoreError) {
    // With the earliest possible time no job counts as expired. The target deletes expired jobs later.
    var query = JobQuery(owner: nil, now: Timestamp(milliseconds: .min), limit: Self.batch)
    query.phases = [.success, .failure, .cancelled]
    while true {
      let page = try await source.records.jobs(query)
      try await move(page.jobs, as: instance, &totals)
      // `page.last` also covers unreadable jobs. A page may contain nothing else.
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
          // An unreadable job is reported in the summary. The jobs next to it are still moved.
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
    let new = try await target.records.importJobs(jobs, images, for: instance)
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
      // A new job id as the holder of the reservations. No other record uses it, and its time has no meaning.
      let holder = JobID(at: Timestamp(milliseconds: 0))
      let wanted = entries.map {
        WantedImage(name: MovedImage(digest: $0.image, bytes: $0.bytes), holder: holder)
      }
      let images = try await provide(wanted, as: instance, &totals)
      let new = try await target.records.importEntries(entries, images, for: instance)
      try await target.records.release(holder)
      let left = entries.count { images.lost.contains($0.image) }
      totals.entries.count(entries.count - left, new: new)
      report(totals)
    }
  }

  /// Copies webhook messages. Their jobs must be copied first: the target deletes sent messages that have no job.
  private func moveMessages(_ totals: inout MoveTotals) async throws(StoreError) {
    var last = Int64.min
    while true {
      let found = try await source.records.messages(after: last, count: 512)
      guard let number = found.last?.number else { return }
      last = number
      let messages = totals.readable(found)
      let new = try await target.records.importMessages(messages)
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
      totals.keys.count(keys.count, new: try await target.records.importKeys(keys))
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
    /// The target already stores the image.
    case found
    case missing
  }

  /// Copies the images that the target lacks, so that its records may refer to them.
  fileprivate func provide(
    _ wanted: [WantedImage], as instance: Instance, _ totals: inout MoveTotals
  ) async throws(StoreError) -> ImportedImages {
    let byName = Dictionary(wanted.map { ($0.name.digest, $0) }) { first, _ in first }
    var missing = try await target.records.unreferenced(Array(byName.keys)).compactMap {
      byName[$0]
    }
    var images = ImportedImages()
    while !missing.isEmpty {
      let some = missing.suffix(Self.concurrency)
      missing.removeLast(some.count)
      for (image, provided) in try await provide(Array(some), as: instance) {
        switch provided {
        case .embedded(let embedded):
          images.embedded.append(embedded)
          totals.move(image.bytes)
        case .put: totals.move(image.bytes)
        case .found: totals.images.found += 1
        case .missing:
          images.lost.insert(image.digest)
          totals.missing.insert(image.digest)
        }
      }
    }
    return images
  }

  private struct Outcome: Sendable {
    let image: MovedImage
    let result: Result<Provided, StoreError>
  }

  // The tasks return a struct, not a tuple. With -O, Swift 6.3.1 miscompiles a task's closure if it returns a tuple from
  // inside do/catch and an element of the tuple precedes an `await`:
  //
  //     group.addTask { () -> (Name, Result<Value, E>) in
  //       do throws(E) { return (name, .success(try await load())) } catch { return (name, .failure(error)) }
  //     }
  //
  // The element before the `await` (`name`) is lost. The parent reads uninitialized memory, and crashes if the element is
  // a reference. The fault affects task groups and `Task`, typed and untyped throws, -O and -Osize. The code is correct
  // at -Onone, with a struct, with the `await` as the first element or in an earlier `let`, and without the `catch`.
  // ArchitectureTests rejects such tuples in all sources.
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
      return .missing
    }
    if image.bytes <= target.records.largestEmbedded {
      let content = await disk.run { bytes.read(at: 0, count: bytes.count) }
      return .embedded(EmbeddedImage(digest: image.digest, content: content))
    }
    let name = try await reserve(wanted, as: instance)
    if target.isSame { return .found }
    try await copy(bytes, as: name)
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
      case .full, .incomplete: throw .full
      // A service is deleting an equal image at this moment. Wait until that is done.
      case .pendingDeletion: try? await Task.sleep(for: .milliseconds(50))
      }
    }
  }

  private func copy(_ bytes: StoredBytes, as name: ImageName) async throws(StoreError) {
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

/// The digest and size of a stored image.
struct MovedImage: Sendable, Hashable {
  let digest: ImageDigest
  let bytes: Int
}

extension Job {
  /// The images that the store keeps for the job.
  fileprivate var keptImages: [MovedImage] {
    var images: [MovedImage] = []
    if let image = keptImage {
      images.append(MovedImage(digest: image.keptDigest, bytes: image.keptBytes))
    }
    // `"original": "drop"` also drops the bytes that the client uploaded, once the job has succeeded.
    if let source = capturedSource, !(submission.dropsOriginal && phase == .success) {
      images.append(MovedImage(digest: source.digest, bytes: source.bytes))
    }
    return images
  }
}
