public import Jobs
internal import Logging

/// What other instances that share the store do, and what they are asked to tell.
extension JobEngine {
  /// Goes by what an operator told those who are there already.
  func joinNetwork() async throws(StoreError) {
    guard !membership.isAlone, let isConstrained = try await store.isConstrained() else { return }
    _ = setNetwork(isConstrained)
  }

  /// Shows what they do to jobs, stops work that they have taken away, and looks for what they queued.
  /// - Parameter news: what is told to the instance that this process is at first.
  func hearOthers(_ news: AsyncStream<News>, as first: Instance) async {
    var (news, instance) = (news, first)
    noteHeard(until: now())
    while !Task.isCancelled {
      for await news in news {
        await hear(news)
        if membership.instance != instance { break }
      }
      // It ends with the lease; there may be another one by now.
      if membership.instance == instance { return }
      instance = membership.instance
      news = membership.news(for: instance)
      // Nobody listened between the end of the last lease and now.
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
        log.error("the network's state can't be read", metadata: ["error": "\(error)"])
      }
      let (moment, held) = (now(), snapshots.dropUnheld())
      // One that is found to be lost may have told nobody what it did while its lease lasted.
      snapshots.subscribers.relist(after: configuration.lease)
      noteHeard(until: moment)
      for id in held { await lookUp(id) }
    // Above: it is none of others.
    case .heard: break
    }
  }

  /// What was told before the store was asked has come. Where news wait for long some may have been lost for want of
  /// room, and the word of that wait behind this one: only what is new counts.
  private func noteHeard(since asked: ContinuousClock.Instant) {
    let age = ContinuousClock.now - asked
    if age < ManyJobsSubscription.slack / 4 { noteHeard(until: now() + (.zero - age)) }
  }

  private func noteHeard(until moment: Timestamp) {
    // Nobody else is there to be heard.
    guard !membership.isAlone else { return }
    snapshots.subscribers.hasHeard(until: moment)
  }

  private func forgetCached() {
    cache.clearMemory()
    views.clear()
  }

  /// Takes in what another instance did to a job. A store that does not answer says nothing of it: it is asked until it
  /// does.
  func lookUp(_ id: JobID) async {
    var wait = Duration.milliseconds(50)
    while !Task.isCancelled {
      do throws(StoreError) {
        return take(try await stored(id), as: id)
      } catch {
        log.error(
          "another instance's change can't be read",
          metadata: ["job": "\(id)", "error": "\(error)"])
        if case .unreadable = error { return }
      }
      try? await Task.sleep(for: wait)
      wait = min(wait * 2, .seconds(5))
    }
  }

  /// The job as the store has it. Where a crash of the store undid a claim that was shown here, what came after it is older
  /// to whoever saw that: the job is made newer, for all who follow it anywhere.
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

  /// Has whoever loads these jobs tell of their progress, as somebody here follows them. Costs nothing where nobody else
  /// can.
  func followElsewhere(_ jobs: [Job]) {
    guard !membership.isAlone else { return }
    let ids = jobs.filter { $0.phase == .loading && !snapshots.isPinned($0.id) }.map(\.id)
    if !ids.isEmpty { membership.tell(.followed(ids)) }
  }
}

/// Who works on the jobs, for people.
extension JobEngine {
  /// The instances that are there, the one that leads first.
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

  /// Publishes what this instance did in a step to the instances that share the store.
  public func record(_ step: Activity.Step) async throws(StoreError) {
    guard !store.isExclusive else { return }
    try await store.record(step, cache.ownCounts, of: membership.instance)
  }

  /// Returns the activity of all instances; nil if this process has the store for itself.
  public func activity() async throws(JobsError) -> Activity? {
    try await storing { () async throws(StoreError) in try await store.activity() }
  }

  /// Which of them this is.
  public var instance: Instance { membership.instance }
}
