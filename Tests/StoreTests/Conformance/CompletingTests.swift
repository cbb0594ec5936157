import Foundation
import Jobs
import Testing

@Suite("Completing jobs")
struct CompletingTests {
  private static func succeed(_ digest: ImageDigest) -> @Sendable (inout Job) -> Bool {
    { job in
      job.succeed(with: digest, bytes: 10, at: .at(9))
      return true
    }
  }

  @Test(
    "a completion returns a result for each claim, and nil for a lost one",
    arguments: StoreAdapter.allCases)
  func inOrder(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = (0..<3).map { Job.sample($0) }
    _ = try await store.submit(batch, key: nil, capacity: 9)
    let claims = try await store.claim(3, at: .at(5)).jobs.map(\.claim)
    _ = try await store.update(batch[1].id, under: nil) { $0.cancel(at: .at(6), keptFor: .zero) }
    let completed = try await store.complete(
      Completion(claims.reversed(), change: Self.succeed(.sample(1)))
    ).jobs
    #expect(completed.map { $0?.id } == [batch[2].id, nil, batch[0].id])
    #expect(completed[0]?.phase == .success)
    #expect(try await store.job(batch[2].id) == completed[0])
    #expect(try await store.job(batch[1].id)?.phase == .cancelled)
    try await store.audit()
    await store.close()
  }

  @Test(
    "a repeated completion returns the jobs that the first one changed",
    arguments: StoreAdapter.allCases)
  func repeated(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = (0..<4).map { Job.sample($0) }
    _ = try await store.submit(batch, key: nil, capacity: 9)
    let claims = try await store.claim(4, at: .at(5)).jobs.map(\.claim)
    // Another caller cancels this job, so the repetition must not return it.
    _ = try await store.update(batch[3].id, under: nil) { $0.cancel(at: .at(6), keptFor: .zero) }
    var completion = Completion(claims) { job in
      if job.id == batch[1].id || job.id == batch[2].id {
        job.requeue()
      } else {
        job.succeed(with: .sample(1), bytes: 10, at: .at(9))
      }
      return true
    }
    let made = try await store.complete(completion).jobs
    #expect(made.map { $0?.phase } == [.success, .queued, .queued, nil])
    #expect(try await store.complete(completion).jobs == [nil, nil, nil, nil])
    completion.isRepeated = true
    #expect(try await store.complete(completion).jobs == made)
    // This job was changed since.
    _ = try await store.update(batch[2].id, under: nil) { $0.cancel(at: .at(10), keptFor: .zero) }
    #expect(try await store.complete(completion).jobs == [made[0], made[1], nil, nil])
    try await store.audit()
    await store.close()
  }

  @Test(
    "an unreadable job does not affect the other jobs of a completion",
    arguments: [StoreAdapter.sqlite, .postgres])
  func unreadable(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let batch = (0..<3).map { Job.sample($0) }
    _ = try await store.submit(batch, key: nil, capacity: 9)
    let claims = try await store.claim(3, at: .at(5)).jobs.map(\.claim)
    try jobs.damage("jobs", "id", of: batch[1].id)
    let entry = try CacheEntry.sample(1, .sample(1), bytes: 10)
    let completed = try await store.complete(
      Completion(claims, entry: entry, change: Self.succeed(.sample(1)))
    ).jobs
    #expect(completed.map { $0?.phase } == [.success, nil, .success])
    #expect(try await store.entries(for: [entry.id.key]) == [[entry]])
    await store.close()
  }

  @Test(
    "a completion stores the entry and releases the reservation even if all claims are lost",
    arguments: StoreAdapter.allCases)
  func withoutJobs(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let holder = JobID(at: .at(1))
    _ = try await store.reserve(.sample(1), bytes: 10, as: holder, limit: 100)
    let entry = try CacheEntry.sample(1, .sample(1), bytes: 10)
    let lost = Claim(job: JobID(at: .at(2)), instance: .none, number: 7)
    let completed = try await store.complete(
      Completion([lost], entry: entry, releasing: holder, change: Self.succeed(.sample(1)))
    ).jobs
    #expect(completed == [nil])
    #expect(try await store.unreferencedImages(9) == [], "the entry refers to it")
    #expect(try await store.cacheCounts() == (1, 10))
    try await store.audit()
    await store.close()
  }

  @Test("a completion changes nothing if the database rejects it", arguments: StoreAdapter.allCases)
  func allOrNothing(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    _ = try await store.submit(.sample(1))
    let (job, claim) = try #require(await store.claimOne())
    let gone = try #require(await store.succeed(5, with: .sample(1), bytes: 10))
    #expect(try await store.remove(gone.id))
    #expect(try await store.unreferencedImages(9) == [.sample(1)])
    // The image is pending deletion and was not reserved.
    await #expect(throws: StoreError.self) {
      try await store.complete(Completion([claim], change: Self.succeed(.sample(1))))
    }
    #expect(try await store.job(job.id) == job)
    try await store.audit()
    await store.close()
  }
}

@Suite("Submitting jobs answered from the cache")
struct AnsweredJobTests {
  private static func answered(_ number: Int64, _ digest: ImageDigest) -> Job {
    var job = Job.sample(number)
    job.succeed(with: digest, bytes: 10, at: .at(number))
    return job
  }

  @Test(
    "answered jobs refer to their image and need no slot in the queue",
    arguments: StoreAdapter.allCases)
  func kept(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let first = try #require(await store.succeed(1, with: .sample(1), bytes: 10))
    let batch = [Self.answered(2, .sample(1)), .sample(3), Self.answered(4, .sample(1))]
    #expect(try await store.submit(batch, key: nil, capacity: 1) == .accepted)
    #expect(try await store.submit([batch[1]], key: nil, capacity: 1) == .queueFull(wanting: 1))
    let more = [Self.answered(5, .sample(1))]
    #expect(try await store.submit(more, key: nil, capacity: 0) == .accepted)
    #expect(try await store.job(batch[0].id) == batch[0])
    #expect(try await store.remove(first.id))
    #expect(try await store.refers(to: .sample(1)))
    #expect(try await store.claim(9, at: .at(9)).jobs.map(\.job.id) == [batch[1].id])
    #expect(try await store.counts().jobs[.success] == 3)
    try await store.audit()
    let room = try await store.reserve(.sample(2), bytes: 95, as: JobID(at: .at(9)), limit: 100)
    #expect(room == .reserved(evicted: [.sample(1)]))
    #expect(try await store.job(batch[0].id)?.image?.isKept == false)
    await store.close()
  }

  @Test(
    "nothing is stored if an image is pending deletion or gone", arguments: StoreAdapter.allCases)
  func imageGone(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let key = IdempotencyKey(owner: Owner("anna"), key: "k", fingerprint: .sample(1))
    let batch = [.sample(3), Self.answered(4, .sample(1))]
    #expect(try await store.submit(batch, key: key, capacity: 9) == .imageGone)
    let gone = try #require(await store.succeed(1, with: .sample(1), bytes: 10))
    #expect(try await store.remove(gone.id))
    #expect(try await store.unreferencedImages(9) == [.sample(1)])
    #expect(try await store.submit(batch, key: key, capacity: 9) == .imageGone)
    #expect(try await store.counts().jobs[.queued] == 0)
    try await store.confirmDeletion([.sample(1)])
    #expect(try await store.submit([.sample(3)], key: key, capacity: 9) == .accepted)
    try await store.audit()
    await store.close()
  }

  @Test(
    "an abandoned image that is not deleted yet is used again", arguments: StoreAdapter.allCases)
  func revived(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    let gone = try #require(await store.succeed(1, with: .sample(1), bytes: 10))
    #expect(try await store.remove(gone.id))
    #expect(try await store.submit(Self.answered(2, .sample(1))) == .accepted)
    #expect(try await store.unreferencedImages(9) == [])
    await store.close()
  }
}

@Suite("Jobs with low-data images")
struct LowDataTests {
  @Test(
    "jobs with low-data images are listed until the image is replaced, evicted or removed",
    arguments: StoreAdapter.allCases)
  func listed(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    var batch = (0..<6).map { Job.sample($0) }
    batch.append(Self.savingData(7))
    _ = try await store.submit(batch, key: nil, capacity: 9)
    for (job, claim) in try await store.claim(9, at: .at(9)).jobs {
      let digest = ImageDigest.sample(Int(job.createdAt.milliseconds % 1_000))
      let variant: SourceVariant = job.id == batch[0].id ? .regular : .lowData
      _ = try await store.update(job.id, under: claim) {
        $0.succeed(with: digest, bytes: 10, variant: variant, at: .at(20))
        return true
      }
    }
    let all = try await store.jobsWithLowDataImages(after: nil, count: 9).map(\.id)
    #expect(all == batch[1...5].map(\.id))
    let page = try await store.jobsWithLowDataImages(after: batch[2].id, count: 2).map(\.id)
    #expect(page == batch[3...4].map(\.id))

    _ = try await store.reserve(.sample(50), bytes: 10, as: JobID(at: .at(1)), limit: 100)
    _ = try await store.update(batch[1].id, under: nil) {
      $0.replaceImage(with: .sample(.sample(50), bytes: 10), cache: nil)
      return true
    }
    #expect(try await store.remove(batch[2].id))
    _ = try await store.update(batch[3].id, under: nil) { $0.edit(priority: nil, tags: ["new"]) }
    let rest = try await store.jobsWithLowDataImages(after: nil, count: 9).map(\.id)
    #expect(rest == batch[3...5].map(\.id))
    _ = try await store.reserve(.sample(51), bytes: 990, as: JobID(at: .at(2)), limit: 1_000)
    #expect(try await store.jobsWithLowDataImages(after: nil, count: 9).isEmpty)
    try await store.audit()
    await store.close()
  }

  private static func savingData(_ number: Int64) -> Job {
    var submission = Submission(source: .url(SourceURL("https://a.example/")!, lowData: nil))
    submission.savesData = true
    return Job(
      id: JobID(at: .at(number)), owner: .anonymous, submission: submission, priority: .normal,
      tags: [], createdAt: .at(number))
  }
}

extension CompletingTests {
  @Test(
    "a job that drops its original keeps its variants, but not the image its client sent",
    arguments: StoreAdapter.allCases)
  func bundle(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let store = jobs.store
    var submission = Submission(
      source: .captured(.sample(1), bytes: 40, contentType: "image/png"))
    submission.variants = [VariantRequest(name: "v0")]
    submission.dropsOriginal = true
    let job = Job(
      id: JobID(at: .at(1)), owner: Owner("anna"), submission: submission, priority: .normal,
      tags: [], createdAt: .at(1))
    _ = try await store.reserve(.sample(1), bytes: 40, as: job.id, limit: .max / 2)
    _ = try await store.submit([job], key: nil, capacity: 9)
    let claims = try await store.claim(1, at: .at(5)).jobs.map(\.claim)
    let load = JobID(at: .at(2))
    _ = try await store.reserve(.sample(2), bytes: 10, as: load, limit: .max / 2)
    _ = try await store.complete(
      Completion(claims, releasing: load) { job in
        var image = StoredImage.sample(.sample(1), bytes: 40)
        image.bundle = VariantBundle(digest: .sample(2), bytes: 10)
        job.succeed(with: image, cache: nil, at: .at(9), keptFor: .seconds(3_600))
        return true
      })
    #expect(try await store.refers(to: .sample(2)))
    #expect(try await !store.refers(to: .sample(1)))
    #expect(try await store.job(job.id)?.image?.bundle?.bytes == 10)
    #expect(try await store.counts().imageBytes == 50)
    #expect(try await store.unreferencedImages(9) == [.sample(1)])
    try await store.audit()
    // The bundle of variants is evicted like an image.
    let made = try await store.reserve(.sample(3), bytes: 95, as: load, limit: 100)
    #expect(made == .reserved(evicted: [.sample(2)]))
    #expect(try await store.job(job.id)?.image?.isKept == false)
    try await store.audit()
    await store.close()
  }
}
