public import Jobs
internal import Logging

/// Events between this process and the other instances that share the store.
extension JobEngine {
  /// Adopts the network state that an operator set at the instances that are already running.
  func joinNetwork() async throws(StoreError) {
    guard !membership.isAlone, let isConstrained = try await store.isConstrained() else { return }
    _ = setNetwork(isConstrained)
  }

  /// Applies the events of other instances until cancelled: shows their changes, stops work that was cancelled or taken
  /// over, and claims jobs that they queued.
  /// - Parameter news: the events for the instance that this process is at first.
  func hearOthers(_ news: AsyncStream<News>, as first: Instance) async {
    var (news, instance) = (news, first)
    noteHeard(until: now())
    while !Task.isCancelled {
      for await news in news {
        await hear(news)
        if membership.instance != instance { break }
      }
      // The stream ends with the lease. The process may have a new lease by now.
      if membership.instance == instance { return }
      instance = membership.instance
      news = membership.news(for: instance)
      // Events between the end of the last lease and now were lost.
      await hear(.lost)
    }
  }

  private func hear(_ news: News) async {
    if case .heard(let asked) = news { return noteHeard(since: asked) }
    membership.metrics.heard()
    switch news {
    case .queued: dispatcher.wake()
    case .awaited(let request): await join(request, JobCompleter.batch)
    case .originPaused(let origin, let time): origins.pause(origin, for: time)
    case .changed(let id): if snapshots.dropUnlessHeld(id) { await lookUp(id) }
    case .removed(let ids):
      snapshots.remove(ids)
      for id in ids { loads.leave(id, before: .max) }
    case .purged(let id, let partial):
      snapshots.purge(id)
      loads.leave(id, before: .max, forgetting: true)
      if let partial { await kept.forget(partial) }
    case .batchPurged(let id): snapshots.purge(batch: id)
    case .imagesGone(let digests):
      for digest in digests {
        cache.memory.remove(digest)
        await images.dropCopy(of: digest)
      }
    case .followed(let ids): snapshots.follow(ids)
    case .progress(let id, let version, let report): snapshots.report(id, report, at: version)
    case .cacheDropped: forgetCached()
    case .constrained(let isConstrained): _ = setNetwork(isConstrained)
    case .lost:
      dispatcher.wake()
      forgetCached()
      do throws(StoreError) { try await joinNetwork() } catch {
        log.error("failed to read the network state", metadata: ["error": "\(error)"])
      }
      let (moment, held) = (now(), snapshots.dropUnheld())
      // An instance that lost its lease may not have published what it did while the lease lasted.
      snapshots.subscribers.relist(after: configuration.lease)
      noteHeard(until: moment)
      for id in held { await lookUp(id) }
    // Handled above: this is no event of another instance.
    case .heard: break
    }
  }

  /// Handles a heartbeat: everything that was published before the store was asked has been delivered. If events are
  /// delayed for long, some may have been dropped, and the `.lost` event may still be behind this one. So only a recent
  /// heartbeat counts.
  private func noteHeard(since asked: ContinuousClock.Instant) {
    let age = ContinuousClock.now - asked
    if age < ManyJobsSubscription.slack / 4 { noteHeard(until: now() + (.zero - age)) }
  }

  private func noteHeard(until moment: Timestamp) {
    // There are no other instances.
    guard !membership.isAlone else { return }
    snapshots.subscribers.hasHeard(until: moment)
  }

  private func forgetCached() {
    cache.clearMemory()
    views.clear()
  }

  /// Reads a job that another instance changed, and applies its new state here. If the store does not answer, retries
  /// until it does.
  func lookUp(_ id: JobID) async {
    var wait = Duration.milliseconds(50)
    while !Task.isCancelled {
      do throws(StoreError) {
        return take(try await stored(id), as: id)
      } catch {
        log.error(
          "failed to read another instance's change",
          metadata: ["job": "\(id)", "error": "\(error)"])
        if case .unreadable = error { return }
      }
      try? await Task.sleep(for: wait)
      wait = min(wait * 2, .seconds(5))
    }
  }

  /// Returns the job as the store has it. A crash of the store can undo a claim that was already shown here. The stored
  /// version is then lower than the shown one, and clients would ignore all later states. So the job gets a higher
  /// version.
  private func stored(_ id: JobID) async throws(StoreError) -> Job? {
    let found = try await store.job(id)
    guard let shown = snapshots.peek(id)?.job, found?.isBehind(shown) == true else { return found }
    let lifted = try await store.update(id, under: nil) { $0.lift(above: shown) }
    membership.tell(.changed(id))
    return lifted
  }

  private func take(_ job: Job?, as id: JobID) {
    guard let job else {
      snapshots.remove([id])
      return loads.leave(id, before: .max)
    }
    snapshots.publish(job, .changedElsewhere)
    guard job.phase == .loading else { return loads.leave(id, before: job.version) }
    loads.prioritize(id, job.priority)
    followElsewhere([job])
  }

  /// Asks the instances that load these jobs to publish their progress, because a client here follows them. Does
  /// nothing in an exclusive store.
  func followElsewhere(_ jobs: [Job]) {
    guard !membership.isAlone else { return }
    let ids = jobs.filter { $0.phase == .loading && !snapshots.isPinned($0.id) }.map(\.id)
    if !ids.isEmpty { membership.tell(.followed(ids)) }
  }
}

/// The instances, for operators.
extension JobEngine {
  /// Returns the instances whose lease is valid, the leading one first.
  public func instances() async throws(JobsError) -> [PresentInstance] {
    let present = try await storing { () async throws(StoreError) in
      try await store.presentInstances()
    }
    guard present.isEmpty else { return present }
    var this = PresentInstance(
      membership.instance, name: configuration.name, version: configuration.version,
      since: since, loading: loads.claims.count)
    (this.running, this.workers) = (loads.count, configuration.workers)
    this.oldest = loads.oldest.map { now() - $0 } ?? .zero
    return [this]
  }

  /// Publishes this instance's activity of one time step to the instances that share the store.
  public func record(_ step: Activity.Step) async throws(StoreError) {
    guard !store.isExclusive else { return }
    try await store.record(step, cache.ownCounts, of: membership.instance)
  }

  /// Returns the activity of all instances; nil in an exclusive store.
  public func activity() async throws(JobsError) -> Activity? {
    try await storing { () async throws(StoreError) in try await store.activity() }
  }

  /// The identity of this process in the cluster.
  public var instance: Instance { membership.instance }
}
