import Jobs
import Testing

@Suite("Storage limit for images")
struct ImageReservationTests {
  @Test(
    "an image counts once, however many jobs and reservations share it",
    arguments: StoreAdapter.allCases)
  func countedOnce(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    _ = try await jobs.store.succeed(1, with: .sample(1), bytes: 100)
    _ = try await jobs.store.succeed(2, with: .sample(1), bytes: 100)
    let upcoming = JobID(at: .at(3))
    let again = try await jobs.store.reserve(
      .sample(1), bytes: 100, as: upcoming, limit: 100)
    #expect(again == .reserved(evicted: []))
    let counts = try await jobs.store.counts()
    #expect(counts.images == 1 && counts.imageBytes == 100)
    await jobs.store.close()
  }

  @Test(
    "the image of the oldest finished job is evicted, and all jobs that share it lose it",
    arguments: StoreAdapter.allCases)
  func givesWay(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let first = try #require(await store.succeed(1, with: .sample(1), bytes: 40))
    let second = try #require(await store.succeed(2, with: .sample(2), bytes: 40))
    let sharing = try #require(await store.succeed(3, with: .sample(1), bytes: 40))
    let upcoming = JobID(at: .at(4))
    let reservation = try await store.reserve(
      .sample(3), bytes: 50, as: upcoming, limit: 100)
    #expect(reservation == .reserved(evicted: [.sample(1)]))
    for job in [first, sharing] {
      var expected = job
      expected.markImageEvicted()
      #expect(try await store.job(job.id) == expected)
    }
    #expect(try await store.job(second.id) == second)
    #expect(try await store.counts().imageBytes == 90)
    let reopened = try await jobs.reopened()
    #expect(try await reopened.job(first.id)?.image?.isKept == false)
    #expect(try await reopened.counts().imageBytes == 90)
    await reopened.close()
  }

  @Test(
    "a corrupt image is removed from its jobs and the cache, unless it is reserved",
    arguments: StoreAdapter.allCases)
  func lost(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let first = try #require(await store.succeed(1, with: .sample(1), bytes: 40))
    let sharing = try #require(await store.succeed(2, with: .sample(1), bytes: 40))
    let other = try #require(await store.succeed(3, with: .sample(2), bytes: 40))
    let holder = JobID(at: .at(4))
    _ = try await store.reserve(.sample(1), bytes: 40, as: holder, limit: 200)
    #expect(try await store.markLost(.sample(1)) == nil)
    #expect(try await store.job(first.id) == first)
    try await store.release(holder)
    #expect(try await Set(store.markLost(.sample(1)) ?? []) == [first.id, sharing.id])
    #expect(try await store.job(first.id)?.image?.isKept == false)
    #expect(try await store.job(other.id) == other)
    #expect(try await store.markLost(.sample(1)) == nil, "it is pending deletion")
    #expect(try await store.markLost(.sample(9)) == nil)
    #expect(try await store.counts().imageBytes == 40)
    #expect(
      try await store.reserve(.sample(1), bytes: 40, as: holder, limit: 200) == .pendingDeletion)
    try await store.confirmDeletion([.sample(1)])
    #expect(
      try await store.reserve(.sample(1), bytes: 40, as: holder, limit: 200)
        == .reserved(evicted: []))
    await store.close()
  }

  @Test("a job whose image was evicted can be fetched again", arguments: StoreAdapter.allCases)
  func fetchedAgain(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let job = try #require(await jobs.store.succeed(1, with: .sample(1), bytes: 60))
    _ = try await jobs.store.succeed(2, with: .sample(2), bytes: 60, limit: 100)
    let queued = try await jobs.store.update(job.id, under: nil) {
      $0.fetchAgain(at: .at(5), from: .regular)
    }
    #expect(queued?.phase == .queued && queued?.image == nil)
    #expect(queued.map { $0.revision > job.revision + 1 } == true)
    #expect(try await jobs.store.claimOne(at: .at(5))?.job.id == job.id)
    await jobs.store.close()
  }

  @Test(
    "a reservation fails if only reserved images and sources of unfinished jobs are left",
    arguments: StoreAdapter.allCases)
  func full(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let kept = try #require(await store.succeed(1, with: .sample(1), bytes: 20))
    let captured = Job.sample(2, captured: (.sample(2), bytes: 50))
    _ = try await store.reserve(.sample(2), bytes: 50, as: captured.id, limit: 100)
    _ = try await store.submit(captured)
    let upcoming = JobID(at: .at(3))
    _ = try await store.reserve(.sample(3), bytes: 30, as: upcoming, limit: 100)
    let refused = try await store.reserve(
      .sample(4), bytes: 21, as: JobID(at: .at(4)), limit: 100)
    #expect(refused == .full)
    #expect(try await store.job(kept.id) == kept)
    #expect(try await store.counts().imageBytes == 100)
    try await store.release(upcoming)
    let taken = try await store.reserve(
      .sample(4), bytes: 21, as: JobID(at: .at(4)), limit: 100)
    #expect(taken == .reserved(evicted: [.sample(3)]), "an unreferenced image is evicted first")
    await store.close()
  }

  @Test(
    "a client's image stays until its job has finished, and can be evicted afterwards",
    arguments: StoreAdapter.allCases)
  func capturedSource(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let job = Job.sample(1, captured: (.sample(1), bytes: 60))
    _ = try await store.reserve(.sample(1), bytes: 60, as: job.id, limit: 100)
    _ = try await store.submit(job)
    #expect(try await store.refers(to: .sample(1)))
    let (_, claim) = try #require(await store.claimOne())
    let holder = JobID(at: .at(2))
    let own = try await store.reserve(.sample(1), bytes: 60, as: holder, limit: 100)
    #expect(own == .reserved(evicted: []))
    try await store.release(holder)
    _ = try await store.update(job.id, under: claim) {
      $0.succeed(with: .sample(1), bytes: 60, at: .at(5))
      return true
    }
    #expect(try await store.unreferencedImages(9) == [])
    let other = try await store.reserve(
      .sample(2), bytes: 60, as: JobID(at: .at(6)), limit: 100)
    #expect(other == .reserved(evicted: [.sample(1)]))
    #expect(try await store.job(job.id)?.image?.isKept == false)
    #expect(try await !store.refers(to: .sample(1)))
    await store.close()
  }

  @Test(
    "a completion releases its reservations, and not those of other holders",
    arguments: StoreAdapter.allCases)
  func settledReservation(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    _ = try await store.submit(.sample(1))
    let (job, claim) = try #require(await store.claimOne())
    let holder = JobID(at: .at(2))
    let other = JobID(at: .at(3))
    _ = try await store.reserve(.sample(1), bytes: 10, as: holder, limit: 100)
    _ = try await store.reserve(.sample(2), bytes: 10, as: holder, limit: 100)
    _ = try await store.reserve(.sample(3), bytes: 10, as: other, limit: 100)
    #expect(try await store.unreferencedImages(9) == [])
    _ = try await store.update(job.id, under: claim) { $0.cancel(at: .at(4), keptFor: .zero) }
    #expect(
      try await store.unreferencedImages(9) == [], "the reservation does not belong to the claim")
    let completion = Completion([claim], releasing: holder) { _ in true }
    #expect(try await store.complete(completion).jobs == [nil])
    #expect(try await Set(store.unreferencedImages(9)) == [.sample(1), .sample(2)])
    #expect(try await store.refers(to: .sample(3)))
    try await store.audit()
    await store.close()
  }

  @Test(
    "an image pending deletion can't be reserved until it is deleted",
    arguments: StoreAdapter.allCases)
  func pendingDeletion(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let job = try #require(await store.succeed(1, with: .sample(1), bytes: 10))
    #expect(try await store.remove(job.id))
    #expect(try await store.unreferencedImages(9) == [.sample(1)])
    #expect(try await store.unreferencedImages(9) == [], "each image is returned once")
    let holder = JobID(at: .at(2))
    #expect(
      try await store.reserve(.sample(1), bytes: 10, as: holder, limit: 100) == .pendingDeletion)
    try await store.confirmDeletion([.sample(1)])
    let taken = try await store.reserve(.sample(1), bytes: 10, as: holder, limit: 100)
    #expect(taken == .reserved(evicted: []))
    await store.close()
  }

  @Test(
    "an unknown image is marked for deletion, and a known one is not",
    arguments: StoreAdapter.allCases)
  func orphans(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    _ = try await store.succeed(1, with: .sample(1), bytes: 10)
    // This image is reserved first: its bytes are being stored right now.
    let publisher = JobID(at: .at(2))
    _ = try await store.reserve(.sample(2), bytes: 10, as: publisher, limit: 100)
    let abandoned = try #require(await store.succeed(3, with: .sample(3), bytes: 10))
    #expect(try await store.remove(abandoned.id))
    let all = (1...5).map { ImageDigest.sample($0) }
    #expect(try await store.markOrphans(all) == [.sample(4), .sample(5)])
    #expect(try await store.markOrphans(all) == [], "each image is returned once")
    #expect(
      try await store.reserve(.sample(4), bytes: 10, as: publisher, limit: 100) == .pendingDeletion)
    #expect(try await store.counts().images == 3)
    try await store.confirmDeletion([.sample(4)])
    let taken = try await store.reserve(.sample(4), bytes: 10, as: publisher, limit: 100)
    #expect(taken == .reserved(evicted: []))
    try await store.audit()

    // The process stopped before the other image's bytes were deleted. It does not count until it
    // is found again.
    let next = try await jobs.reopened()
    _ = try await next.recover()
    #expect(try await next.unreferencedImages(9).contains(.sample(5)) == false)
    #expect(try await next.markOrphans([.sample(5)]) == [.sample(5)])
    try await next.audit()
    await next.close()
  }

  @Test(
    "deleting the row of an image with new references changes nothing",
    arguments: StoreAdapter.allCases)
  func forgottenTooLate(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    _ = try await jobs.store.succeed(1, with: .sample(1), bytes: 10)
    try await jobs.store.confirmDeletion([.sample(1), .sample(2)])
    #expect(try await jobs.store.refers(to: .sample(1)))
    #expect(try await jobs.store.counts().images == 1)
    await jobs.store.close()
  }

  @Test("an abandoned image that is reserved in time stays", arguments: StoreAdapter.allCases)
  func revived(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let job = try #require(await jobs.store.succeed(1, with: .sample(1), bytes: 10))
    #expect(try await jobs.store.remove(job.id))
    let holder = JobID(at: .at(2))
    _ = try await jobs.store.reserve(.sample(1), bytes: 10, as: holder, limit: 100)
    #expect(try await jobs.store.unreferencedImages(9) == [])
    await jobs.store.close()
  }

  @Test(
    "recovery removes reservations and deletion marks, so that the images can be deleted",
    arguments: StoreAdapter.allCases)
  func recovered(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let gone = try #require(await jobs.store.succeed(1, with: .sample(1), bytes: 10))
    _ = try await jobs.store.remove(gone.id)
    #expect(try await jobs.store.unreferencedImages(9) == [.sample(1)])
    _ = try await jobs.store.submit(.sample(2))
    let (job, claim) = try #require(await jobs.store.claimOne())
    _ = try await jobs.store.reserve(.sample(2), bytes: 10, as: claim.job, limit: 100)
    let upcoming = JobID(at: .at(3))
    _ = try await jobs.store.reserve(.sample(3), bytes: 10, as: upcoming, limit: 100)

    let store = try await jobs.reopened()
    #expect(try await store.recover() == 1)
    var requeued = job
    requeued.requeue()
    #expect(try await store.job(job.id) == requeued)
    #expect(try await store.unreferencedImages(2).count == 2)
    #expect(try await store.unreferencedImages(9).count == 1)
    try await store.confirmDeletion([.sample(1), .sample(2), .sample(3)])
    let counts = try await store.counts()
    #expect(counts.images == 0 && counts.imageBytes == 0)
    #expect(counts.jobs[.queued] == 1 && counts.jobs[.loading] == 0)
    await store.close()
  }
}
