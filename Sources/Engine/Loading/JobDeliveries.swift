internal import Jobs
internal import Logging
internal import Metrics

/// Brings the images of jobs where they are to go, before their success is told.
///
/// In come jobs whose image, with their variants, is there for as long as the load; out comes, for each, what was brought
/// where, or why not. Each job's is its own matter: it ends with its own deliveries, one that is cancelled meanwhile stops,
/// and the others go on.
struct JobDeliveries: Sendable {
  /// What came of a job's deliveries.
  typealias Outcome = Result<[Delivered], JobFailure>

  /// A job whose deliveries are over.
  struct Through: Sendable {
    let waiter: Load.Waiter
    let outcome: Outcome
  }

  /// What came of bringing a success's new image to where the one before had been brought.
  struct Replaced: Sendable {
    /// What is where by now: the one before, from the first place on that the new one did not get to.
    let deliveries: [Delivered]
    /// Why it did not get there; nil: it is everywhere.
    let failure: JobFailure?
  }

  /// Nil: nothing is brought anywhere.
  let destinations: (any ImageDestinations)?
  let images: any ImageStore
  let threads: any ComputeThreads
  let snapshots: JobSnapshots
  let log: Logger
  private let counters = (
    delivered: Counter(
      label: "imagefetch_deliveries_total", dimensions: [("outcome", "delivered")]),
    failed: Counter(label: "imagefetch_deliveries_total", dimensions: [("outcome", "failed")])
  )
  /// Jobs of one load whose images are on their way, or brought and not yet told as such, at the same time.
  private static let atOnce = 8

  init(
    destinations: (any ImageDestinations)?, images: any ImageStore, threads: any ComputeThreads,
    snapshots: JobSnapshots, log: Logger
  ) {
    (self.destinations, self.images, self.threads) = (destinations, images, threads)
    (self.snapshots, self.log) = (snapshots, log)
  }

  /// Returns once the jobs that `complete` was called for are completed.
  ///
  /// - Parameters:
  ///   - made: the image, and the variants that the jobs want.
  ///   - complete: ends a job whose deliveries are through; called for all but the last one.
  /// - Returns: the last one, for the caller to end what the jobs share with it; nil where there are none.
  func deliver(
    for waiters: [Load.Waiter], _ made: JobVariants,
    _ complete: @escaping @Sendable (Load.Waiter, Outcome) async -> Void
  ) async -> Through? {
    await withTaskGroup(of: Step.self, returning: Through?.self) { group in
      var turns = DeliveryTurns(waiters)
      var left = waiters.count
      var last: Through?
      for _ in 0..<Self.atOnce {
        guard let next = turns.next() else { break }
        group.addTask { .through(await self.through(next, made)) }
      }
      while let step = await group.next() {
        switch step {
        case .through(let ended):
          left -= 1
          if left == 0 {
            last = ended
          } else {
            group.addTask {
              await complete(ended.waiter, ended.outcome)
              return .completed(ended.waiter)
            }
          }
        case .completed(let waiter):
          // Only now: what is brought while the store is away would all be brought again after a crash.
          turns.end(waiter)
          if let next = turns.next() { group.addTask { .through(await self.through(next, made)) } }
        }
      }
      return last
    }
  }

  /// Brings the image that is to take the place of a success's to where that was brought, for as long as the load goes on.
  func replace(_ job: Job, _ made: JobVariants, of load: Load) async -> Replaced {
    let replaced = await whileWanted({ !load.isCancelled }) { await replace(job, made) }
    return replaced ?? Replaced(deliveries: job.deliveries, failure: .fetch(.cancelled))
  }

  private func replace(_ job: Job, _ made: JobVariants) async -> Replaced {
    var delivered: [Delivered] = []
    for request in job.submission.deliveries {
      do throws(JobFailure) {
        delivered.append(try await deliver(request, of: job, made))
      } catch {
        let others = job.deliveries.dropFirst(delivered.count)
        return Replaced(deliveries: delivered + others, failure: error)
      }
    }
    return Replaced(deliveries: delivered, failure: nil)
  }

  /// What a job has come to.
  private enum Step: Sendable {
    case through(Through)
    case completed(Load.Waiter)
  }

  private func through(_ waiter: Load.Waiter, _ made: JobVariants) async -> Through {
    // Until the job is cancelled or gone, or the service stops.
    let outcome = await whileWanted({ snapshots.peek(waiter.job.id)?.job.phase == .loading }) {
      await deliver(waiter.job, made)
    }
    return Through(waiter: waiter, outcome: outcome ?? .failure(.fetch(.cancelled)))
  }

  /// - Returns: nil where it was given up, as nobody wants it any more or the task was cancelled.
  private func whileWanted<Brought: Sendable>(
    _ isWanted: @escaping @Sendable () -> Bool, _ bring: @escaping @Sendable () async -> Brought
  ) async -> Brought? {
    await withTaskGroup(of: Brought?.self, returning: Brought?.self) { group in
      group.addTask { await bring() }
      group.addTask {
        while isWanted() {
          do { try await Task.sleep(for: .milliseconds(100)) } catch { return nil }
        }
        return nil
      }
      let first: Brought? = await group.next() ?? nil
      group.cancelAll()
      return first
    }
  }

  private func deliver(_ job: Job, _ made: JobVariants) async -> Outcome {
    do throws(JobFailure) {
      var delivered: [Delivered] = []
      for request in job.submission.deliveries {
        delivered.append(try await deliver(request, of: job, made))
      }
      return .success(delivered)
    } catch {
      return .failure(error)
    }
  }

  private func deliver(
    _ request: DeliveryRequest, of job: Job, _ made: JobVariants
  ) async throws(JobFailure) -> Delivered {
    let content = try await content(of: request, of: job, made)
    await read(content.bytes, at: job.priority)
    let (parcel, key) = try parcel(content, for: request, of: job)
    do throws(DeliveryError) {
      let tag = try await send(parcel)
      counters.delivered.increment()
      return Delivered(request, key: key, bytes: parcel.content.count, entityTag: tag)
    } catch {
      if error == .cancelled { throw .fetch(.cancelled) }
      counters.failed.increment()
      log.warning(
        "an image could not be delivered", metadata: ["job": "\(job.id)", "error": "\(error)"])
      throw .delivery(error)
    }
  }

  private func parcel(
    _ content: DeliveredContent, for request: DeliveryRequest, of job: Job
  ) throws(JobFailure) -> (Parcel, key: String?) {
    switch request.target {
    case .put(let url, let headers):
      return (content.parcel(to: .put(url, headers: headers)), nil)
    case .profile(let name, let template):
      let key = job.key(
        template, of: content.digest, ending: content.ending, variant: request.variant)
      guard let key else { throw .delivery(.longKey(to: name)) }
      return (content.parcel(to: .profile(name, key: key)), key)
    }
  }

  private func content(
    of request: DeliveryRequest, of job: Job, _ made: JobVariants
  ) async throws(JobFailure) -> DeliveredContent {
    if let name = request.variant {
      return try made.content(ofVariant: name, for: job)
    }
    if let content = made.original { return content }
    do throws(StoreError) {
      if let stored = try await images.open(made.image.digest) {
        return DeliveredContent(made.image, stored)
      }
    } catch {
      log.error("an image to be delivered can't be read", metadata: ["error": "\(error)"])
      throw JobFailure(error)
    }
    throw .internal
  }

  /// Reads a file once where that may wait for the disk: it is sent on the thread of all transfers, from memory then.
  private func read(_ bytes: StoredBytes, at priority: Priority) async {
    guard case .file = bytes else { return }
    await Task(executorPreference: threads.lane(at: priority)) {
      var offset = 0
      while offset < bytes.count {
        let count = bytes.read(at: offset, count: 1 << 20).count
        guard count > 0 else { return }
        offset += count
        await Task.yield()
      }
    }.value
  }

  private func send(_ parcel: Parcel) async throws(DeliveryError) -> String? {
    guard let destinations else { throw .unknown(to: parcel.target.name) }
    return try await destinations.deliver(parcel)
  }
}

/// Whose job is next: one of the owners that have the fewest under way, so that slow receivers of one leave places to the
/// others.
private struct DeliveryTurns {
  /// The next one last.
  private var waiting: [Owner: [Load.Waiter]]
  private var underWay: [Owner: Int] = [:]

  init(_ waiters: [Load.Waiter]) {
    waiting = Dictionary(grouping: waiters.reversed()) { $0.job.owner }
  }

  mutating func next() -> Load.Waiter? {
    let owner = waiting.keys.min { underWay[$0, default: 0] < underWay[$1, default: 0] }
    guard let owner, let next = waiting[owner]?.popLast() else { return nil }
    if waiting[owner]?.isEmpty == true { waiting[owner] = nil }
    underWay[owner, default: 0] += 1
    return next
  }

  mutating func end(_ waiter: Load.Waiter) { underWay[waiter.job.owner, default: 0] -= 1 }
}

/// Bytes to be delivered.
struct DeliveredContent: Sendable {
  let bytes: StoredBytes
  let digest: ImageDigest
  let contentType: String
  let ending: String

  /// An image's own.
  init(_ image: StoredImage, _ bytes: StoredBytes) {
    (self.bytes, digest) = (bytes, image.digest)
    (contentType, ending) = (
      image.description.format.contentType, image.description.format.fileExtension
    )
  }

  /// A variant's.
  init(_ bytes: StoredBytes, _ digest: ImageDigest, _ format: OutputFormat) {
    (self.bytes, self.digest) = (bytes, digest)
    (contentType, ending) = (format.contentType, format.fileExtension)
  }

  func parcel(to target: Parcel.Target) -> Parcel {
    Parcel(to: target, bytes, digest: digest, contentType: contentType)
  }
}
