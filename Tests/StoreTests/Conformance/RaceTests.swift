import Images
import Jobs
import TestSupport
import Testing

@Suite("Job store and image store together")
struct RaceTests {
  private static let limit = 400

  @Test(
    "every stored image has its file and every file its image, under concurrent operations",
    arguments: StoreAdapter.allCases)
  func keptImagesHaveFiles(adapter: StoreAdapter) async throws {
    let jobs = try OpenJobs(adapter)
    let images = try jobs.folder.openImages()
    let store = jobs.store
    try await withThrowingTaskGroup(of: Void.self) { group in
      for worker in 0..<10 {
        group.addTask {
          var random = SeededNumbers(state: UInt64(worker))
          for step in 0..<20 {
            try await Self.work(step, store, images, &random)
            try await Self.clean(store.unreferencedImages(2), store, images)
          }
        }
      }
      try await group.waitForAll()
    }
    try await Self.clean(store.unreferencedImages(99), store, images)
    var query = JobQuery(owner: nil, now: .at(0), limit: 500)
    query.phases = [.success]
    let kept = try await store.jobs(query).jobs.compactMap(\.image).filter(\.isKept)
    #expect(!kept.isEmpty)
    for image in kept { #expect(try await images.open(image.digest)?.count == image.bytes) }
    #expect(try await store.counts().images == Set(kept.map(\.digest)).count)
    #expect(jobs.folder.files(below: "images").count == Set(kept.map(\.digest)).count)
    await store.close()
  }

  /// Runs one job from submission to success with one of a few images, and sometimes removes it.
  private static func work(
    _ step: Int, _ store: StoreUnderTest, _ images: FileImageStore, _ random: inout SeededNumbers
  ) async throws {
    _ = try await store.submit(.sample(Int64(step)))
    guard let (job, claim) = try await store.claimOne() else { return }
    let staged = try await images.stage()
    try staged.write([UInt8](repeating: .random(in: 0..<8, using: &random), count: 100))
    let digest = staged.finish()
    let holder = JobID(at: .at(1))
    var room = StoreUnderTest.ReservationResult.pendingDeletion
    let deadline = ContinuousClock.now + patience
    while room == .pendingDeletion, ContinuousClock.now < deadline {
      room = try await store.reserve(digest, bytes: 100, as: holder, limit: limit)
    }
    let isReserved = if case .reserved = room { true } else { false }
    if case .reserved(let evicted) = room {
      try await clean(evicted, store, images)
      try await images.publish(staged)
    }
    let completion = Completion([claim], releasing: holder) {
      if isReserved {
        $0.succeed(with: digest, bytes: 100, at: .at(Int64(step)))
      } else {
        $0.fail(.storageFull, at: .at(Int64(step)), keptFor: .seconds(9))
      }
      return true
    }
    _ = try await store.complete(completion)
    if Int.random(in: 0..<3, using: &random) == 0 { _ = try await store.remove(job.id) }
  }

  private static func clean(
    _ digests: [ImageDigest], _ store: StoreUnderTest, _ images: FileImageStore
  ) async throws {
    for digest in digests { try await images.remove(ImageName(digest)) }
    try await store.confirmDeletion(digests)
  }
}
