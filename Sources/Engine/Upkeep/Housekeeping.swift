internal import Jobs
internal import Logging
internal import Synchronization
internal import Waiting

/// Deletes what has expired and images that nothing refers to, once a second on Swift's threads. In a cluster the
/// leading instance does it for all; every instance requeues jobs of lost instances.
struct Housekeeping: Sendable {
  let store: any JobStore
  let lease: Lease
  let dispatcher: Dispatcher
  let images: any ImageStore
  let keeper: ImageLifecycle
  let snapshots: JobSnapshots
  let cache: ResponseCache
  let dailyBytes: DailyBytes
  let idempotencyTTL: Duration
  let now: WallClock
  let log: Logger
  private static let batch = 256
  /// Pause between two steps of the sweep, of some hundred images each. A sweep of a million images takes minutes.
  private static let sweepPause = Duration.milliseconds(50)

  /// Runs once a second until cancelled. Requeuing the jobs of lost instances is a separate loop, because deleting
  /// images takes long while an object store does not respond.
  func run() async {
    async let recovering: Void = onceASecond { await recover() }
    await onceASecond {
      await dailyBytes.save(in: store, at: now(), log)
      if lease.leads {
        await runRound()
        await deleteExpiredKeys()
      } else {
        await finishOwn()
      }
    }
    await recovering
  }

  private func onceASecond(_ body: @Sendable () async -> Void) async {
    while !Task.isCancelled {
      await body()
      try? await Task.sleep(for: .seconds(1))
    }
  }

  /// Queues jobs again whose instance has lost its lease.
  private func recover() async {
    do throws(StoreError) {
      while !Task.isCancelled {
        let jobs = try await store.recoverExpired(Self.batch)
        for job in jobs { snapshots.publish(job) }
        if !jobs.isEmpty {
          lease.membership.metrics.tookOver(jobs.count)
          log.notice("requeued jobs of a lost instance", metadata: ["jobs": "\(jobs.count)"])
          dispatcher.jobsWereQueued()
        }
        if jobs.count < Self.batch { return }
      }
    } catch {
      log.error("failed to requeue jobs of lost instances", metadata: ["error": "\(error)"])
    }
  }

  /// Runs one round: first this instance's own deletions, then expired jobs, then unreferenced images.
  func runRound() async {
    await finishOwn()
    do throws(StoreError) {
      var expired: [JobID]
      repeat {
        expired = try await store.expire(Self.batch)
        if !expired.isEmpty {
          snapshots.remove(expired)
          // At most ``InstanceEvent/mostIDs`` ids in an event: a longer one is delivered as lost, and the other instances would
          // clear their memory.
          for some in stride(from: 0, to: expired.count, by: InstanceEvent.mostIDs) {
            lease.membership.publish(
              .removed(Array(expired[some...].prefix(InstanceEvent.mostIDs))))
          }
        }
      } while expired.count == Self.batch && !Task.isCancelled
      try await removeAbandonedImages()
    } catch {
      log.error("housekeeping failed", metadata: ["error": "\(error)"])
    }
  }

  /// Finishes the deletions and saves the cache uses that only this instance knows of.
  private func finishOwn() async {
    if let failure = await keeper.retry() {
      log.error("housekeeping failed", metadata: ["error": "\(failure)"])
    }
    await cache.saveUses()
  }

  /// Deletes images that a crash left without a reference. Scans all images once after the start, slowly enough not to
  /// disturb other work. In a cluster the leading instance scans, and repeats that once a day, because other instances
  /// may crash later. Runs until cancelled.
  func sweep() async {
    do throws(StoreError) { try await images.deleteTemporaryFiles() } catch {
      log.error("failed to delete old copies of images", metadata: ["error": "\(error)"])
    }
    repeat {
      while !lease.leads {
        try? await Task.sleep(for: .seconds(1))
        if Task.isCancelled { return }
      }
      await removeOrphans()
      if lease.membership.isAlone { return }
      try? await Task.sleep(for: .seconds(86_400))
    } while !Task.isCancelled
  }

  private func removeOrphans() async {
    do throws(StoreError) {
      let removed = try await images.sweep { names in
        let removed = await removeOrphans(among: names)
        try? await Task.sleep(for: Self.sweepPause)
        return removed
      }
      if removed > 0 {
        log.notice("deleted unreferenced images", metadata: ["images": "\(removed)"])
      }
    } catch {
      log.error("failed to scan for unreferenced images", metadata: ["error": "\(error)"])
    }
  }

  /// Marks unreferenced images for deletion before deleting them, so that no instance stores the same image at that
  /// moment.
  private func removeOrphans(among names: [ImageName]) async -> Int {
    let orphans = await retryUntilSuccess("failed to look up images", log) {
      () async throws(StoreError) in
      try await store.markOrphans(names, for: lease.instance)
    }
    guard let orphans else { return 0 }
    await keeper.remove(orphans)
    return orphans.count
  }

  /// Deletes expired idempotency keys, few at a time, because one key may name all jobs of a large batch.
  private func deleteExpiredKeys() async {
    let batch = 64
    do throws(StoreError) {
      while try await store.deleteKeys(olderThan: idempotencyTTL, count: batch) == batch {
        if Task.isCancelled { return }
      }
    } catch {
      log.error("failed to delete expired idempotency keys", metadata: ["error": "\(error)"])
    }
  }

  /// Deletes unreferenced images for at most about a second; the next round continues.
  private func removeAbandonedImages() async throws(StoreError) {
    let end = ContinuousClock.now + .seconds(1)
    var abandoned: [ImageName]
    repeat {
      abandoned = try await store.unreferencedImages(Self.batch, for: lease.instance)
      await keeper.remove(abandoned)
    } while abandoned.count == Self.batch && !Task.isCancelled && .now < end
  }
}

/// Runs rounds of cleaning up on request. One round serves all callers that requested it before it began.
///
/// A caller waits for the end of the round, so that purged data is deleted when the client gets its response. It waits
/// two seconds at most, in case an object store does not respond; the job store remembers what is still to be deleted.
final class CleanupRounds: Sendable {
  private let asked = Mutex<[OneShot<Void>]>([])
  private let wake = Signal()
  private static let maxWait = Duration.seconds(2)

  /// Requests a round without waiting for it.
  func request() { wake.send() }

  /// Requests a round. Returns when it is over, or after two seconds.
  func requestAndWait() async {
    let end = OneShot<Void>()
    asked.withLock { $0.append(end) }
    wake.send()
    _ = await end.value(before: .now + Self.maxWait)
  }

  /// Runs the requested rounds until cancelled.
  func run(_ round: () async -> Void) async {
    for await _ in wake.arrivals {
      let served = asked.withLock { asked in
        defer { asked = [] }
        return asked
      }
      await round()
      for end in served { end.fulfil() }
    }
  }
}

/// Runs a slow operation once at a time. Callers that arrive while it runs wait for its end, for at most `limit`.
final class SharedOperation: Sendable {
  private let underWay = Mutex(Task<Void, Never>?.none)

  func run(atMost limit: Duration, _ look: @escaping @Sendable () async -> Void) async {
    let task = underWay.withLock { task in
      if let task { return task }
      let new = Task {
        await look()
        underWay.withLock { $0 = nil }
      }
      task = new
      return new
    }
    let end = OneShot<Void>()
    Task {
      await task.value
      end.fulfil(())
    }
    _ = await end.value(before: .now + limit)
  }
}
