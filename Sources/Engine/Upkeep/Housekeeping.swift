internal import Jobs
internal import Logging

/// Forgets what has expired, and removes the bytes that nothing refers to any more: once a second, on Swift's threads. Of
/// instances that share a store one does it for all, but for what is given back of those that are gone.
struct Housekeeping: Sendable {
  let store: any JobStore
  let lease: Lease
  let dispatcher: Dispatcher
  let images: any ImageStore
  let keeper: ImageKeeper
  let snapshots: JobSnapshots
  let cache: ResponseCache
  let dailyBytes: DailyBytes
  let idempotencyTTL: Duration
  let now: WallClock
  let log: Logger
  private static let batch = 256
  /// Between some hundred images and the next: a million take minutes.
  private static let sweepPause = Duration.milliseconds(50)

  /// Tidies once a second until cancelled. Jobs that others left don't wait for images to be removed, which takes long
  /// where what keeps them stands still.
  func run() async {
    async let recovering: Void = onceASecond { await recover() }
    await onceASecond {
      await dailyBytes.save(in: store, at: now(), log)
      if lease.leads {
        await tidy()
        await forgetKeys()
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

  /// Takes over what others left: jobs whose worker is gone are queued again.
  private func recover() async {
    do throws(StoreError) {
      while !Task.isCancelled {
        let jobs = try await store.recoverExpired(Self.batch)
        for job in jobs { snapshots.publish(job) }
        if !jobs.isEmpty {
          lease.membership.metrics.tookOver(jobs.count)
          log.notice("took jobs over whose worker is gone", metadata: ["jobs": "\(jobs.count)"])
          dispatcher.jobsWereQueued()
        }
        if jobs.count < Self.batch { return }
      }
    } catch {
      log.error("jobs of lost workers can't be taken over", metadata: ["error": "\(error)"])
    }
  }

  /// One round: as many batches as there is work for. What others may wait for comes first.
  func tidy() async {
    await finishOwn()
    do throws(StoreError) {
      var expired: [JobID]
      repeat {
        expired = try await store.expire(Self.batch)
        if !expired.isEmpty {
          snapshots.remove(expired)
          // What is longer is told as lost, and others forget all that they have.
          for some in stride(from: 0, to: expired.count, by: News.mostIDs) {
            lease.membership.tell(.removed(Array(expired[some...].prefix(News.mostIDs))))
          }
        }
      } while expired.count == Self.batch && !Task.isCancelled
      try await removeAbandonedImages()
    } catch {
      log.error("housekeeping failed", metadata: ["error": "\(error)"])
    }
  }

  /// What only this instance knows of.
  private func finishOwn() async {
    if let failure = await keeper.retry() {
      log.error("housekeeping failed", metadata: ["error": "\(failure)"])
    }
    await cache.noteUses()
  }

  /// Removes the images that a crash left without anything that refers to them: all are looked at once after a start,
  /// beside the work and so slowly that it hardly feels it, until cancelled. Of many instances the one looks that leads,
  /// once it does, and once a day: others may come and crash while it lives.
  func sweep() async {
    do throws(StoreError) { try await images.tidy() } catch {
      log.error("old copies of images stay", metadata: ["error": "\(error)"])
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
        log.notice("removed images that nothing refers to", metadata: ["images": "\(removed)"])
      }
    } catch {
      log.error("images can't be looked through", metadata: ["error": "\(error)"])
    }
  }

  /// Marks orphans for deletion before it removes them: nobody can be about to keep the same image again then.
  private func removeOrphans(among names: [ImageName]) async -> Int {
    let orphans = await insist("images can't be looked up", log) { () async throws(StoreError) in
      try await store.markOrphans(names, for: lease.instance)
    }
    guard let orphans else { return 0 }
    await keeper.remove(orphans)
    return orphans.count
  }

  /// Forgets the idempotency keys whose time is over: few at once, as one may name a whole batch's jobs.
  private func forgetKeys() async {
    let batch = 64
    do throws(StoreError) {
      while try await store.forgetKeys(olderThan: idempotencyTTL, count: batch) == batch {
        if Task.isCancelled { return }
      }
    } catch {
      log.error("old idempotency keys stay", metadata: ["error": "\(error)"])
    }
  }

  /// However many there are, not for long: the next round goes on.
  private func removeAbandonedImages() async throws(StoreError) {
    let end = ContinuousClock.now + .seconds(1)
    var abandoned: [ImageName]
    repeat {
      abandoned = try await store.abandonedImages(Self.batch, for: lease.instance)
      await keeper.remove(abandoned)
    } while abandoned.count == Self.batch && !Task.isCancelled && .now < end
  }
}
