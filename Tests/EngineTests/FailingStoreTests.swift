import Logging
import SQL
import Synchronization
import TestSupport
import Testing
import Waiting

@testable import Engine
@testable import Jobs

@Suite("A store that fails for a while", .timeLimit(.minutes(15)))
struct FailingStoreTests {
  private let url = "http://a.example/x.png"
  private let failure = StoreError.unavailable(detail: "away")

  @Test("a failed read of a changed job keeps its load and its subscribers")
  func followed() async throws {
    let lines = LogLines()
    try await Workshop.open(log: lines.logger, { $0.workers = 1 }) { shop in
      shop.fetcher.answer(url, with: .hangs(after: ok))
      let id = try await shop.submit(url)
      _ = try await shop.reached(.loading, id)
      let subscription = try await shop.engine.subscribe(
        to: id, for: Workshop.me, seen: nil, cancelsOnDisconnect: false)
      _ = subscription.next()
      // Another instance changes the job, and reading the change fails twice.
      try await shop.store.changeAsAnother(
        id,
        { job in
          return job.edit(priority: nil, tags: ["theirs"])
        }, thenFailing: [failure, failure])
      try await until { shop.engine.peek(id, for: Workshop.me)?.job.tags == ["theirs"] }
      #expect(shop.engine.peek(id, for: Workshop.me)?.job.phase == .loading)
      #expect(lines.count("failed to read another instance's change") == 2)
      // New tags alone are no event. There is an update only if more bytes arrived.
      if case .end = subscription.next() { Issue.record("the subscription has ended") }
      #expect(shop.fetcher.requests.count == 1)
    }
  }

  @Test("a failed query does not stop the replacement of low-data images")
  func lowData() async throws {
    try await Workshop.open({ $0.isConstrained = true }) { shop in
      shop.fetcher.answer("http://a.example/small", with: .pieces([ok], total: nil))
      shop.fetcher.answer(url, with: .pieces([ok + [1]], total: nil))
      let source = Source.url(SourceURL(url)!, lowData: SourceURL("http://a.example/small"))
      let new = NewJob(submission: Submission(source: source))
      let id = try await shop.engine.submit([new], by: Workshop.me, key: nil)[0].id
      #expect(try await shop.finished(id).image?.variant == .lowData)
      await shop.store.calls.fail(with: [failure], of: .lowData)
      try await shop.engine.setConstrained(false)
      try await until { shop.engine.peek(id, for: Workshop.me)?.job.image?.variant == .regular }
    }
  }

  private func keeper(
    of store: MemoryJobStore, _ images: MemoryImageStore, _ log: Logger
  ) async throws -> (ImageLifecycle, Lease) {
    let lease = Lease(
      store: store, membership: Membership(store: store), duration: .seconds(3_600),
      loads: NoJobs(), clock: StoreClock { ManualClock().now }, log: log)
    try await lease.begin()
    let uploads = UploadQuota(99) { ManualClock().now }
    return (
      ImageLifecycle(store: store, images: images, uploads: uploads, lease: lease, log: log), lease
    )
  }

  @Test("an image is deleted although the answer that marked it was lost")
  func lostAnswer() async throws {
    let (store, images) = (MemoryJobStore(), MemoryImageStore())
    let image = images.leaveOrphan(ok)
    let (keeper, lease) = try await keeper(of: store, images, LogLines().logger)
    let holder = JobIDSequence().next(at: Timestamp(milliseconds: 1))
    _ = try await store.reserve(image, bytes: 9, as: holder, of: lease.instance, limit: 99)
    try await store.release(holder)
    await store.calls.fail(with: [failure], of: .unreferenced.answer)
    await #expect(throws: failure) { try await store.unreferencedImages(9, for: lease.instance) }
    #expect(try await store.unreferencedImages(9, for: lease.instance) == [])
    #expect(images.digests == [image])
    #expect(await keeper.retry() == nil)
    #expect(images.digests.isEmpty)
    let again = try await store.reserve(image, bytes: 9, as: holder, of: lease.instance, limit: 99)
    #expect(again != .pendingDeletion)
  }

  /// Leaves an image that the store has marked for deletion, but whose name was lost with the answer.
  private func markWithLostAnswer(
    _ store: MemoryJobStore, _ images: MemoryImageStore, for instance: Instance
  ) async throws -> ImageName {
    let image = images.leaveOrphan(ok)
    _ = try await store.reserve(image, bytes: ok.count, as: holder, of: instance, limit: 99)
    let name = try #require(try await store.keptImage(image)).name
    try await store.release(holder)
    await store.calls.fail(with: [failure], of: .unreferenced.answer)
    await #expect(throws: failure) { try await store.unreferencedImages(9, for: instance) }
    return name
  }

  private func storeAgain(
    _ image: ImageDigest, in images: MemoryImageStore, by keeper: ImageLifecycle
  ) async throws {
    let staged = try await images.spool.stage()
    try staged.write(ok)
    #expect(try await keeper.save(staged, image, bytes: ok.count, as: holder, limit: 99))
  }

  @Test(
    "an image stored again stays when reporting its earlier deletion failed",
    arguments: [StoreCalls.Call.confirmDeletion, .confirmDeletion.answer])
  func forgotten(call: StoreCalls.Call) async throws {
    let (store, images) = (MemoryJobStore(), MemoryImageStore())
    let (keeper, lease) = try await keeper(of: store, images, LogLines().logger)
    let (image, marked) = try await mark(store, images, for: lease.instance)
    await store.calls.fail(with: [failure], of: call)
    await keeper.remove(marked)
    try await storeAgain(image, in: images, by: keeper)
    #expect(await keeper.retry() == nil)
    #expect(images.digests == [image])
  }

  @Test("an image stored again stays when a search for marks that still has it ends later")
  func lateLook() async throws {
    let (store, images) = (MemoryJobStore(), MemoryImageStore())
    let (keeper, lease) = try await keeper(of: store, images, LogLines().logger)
    let name = try await markWithLostAnswer(store, images, for: lease.instance)
    await store.calls.hold(.pendingDeletion.answer)
    async let round = keeper.retry()
    try await until { await store.calls.heldCalls == 1 }
    await keeper.remove([name])
    try await storeAgain(name.digest, in: images, by: keeper)
    await store.calls.letGo()
    let fault = await round
    #expect(fault == nil && images.digests == [name.digest])
  }

  @Test("an image is not deleted again while its deletion is being reported")
  func lateForgetting() async throws {
    let (store, images) = (MemoryJobStore(), MemoryImageStore())
    let (keeper, lease) = try await keeper(of: store, images, LogLines().logger)
    let name = try await markWithLostAnswer(store, images, for: lease.instance)
    await store.calls.hold(.confirmDeletion)
    async let removing: Void = keeper.remove([name])
    try await until { await store.calls.heldCalls == 1 }
    // A second deletion of the image would fail.
    images.stick(name.digest)
    let fault = await keeper.retry()
    await store.calls.letGo()
    await removing
    #expect(fault == nil)
  }

  @Test("an image stored again stays when a delayed answer marks it for deletion")
  func lateMark() async throws {
    let (store, images) = (MemoryJobStore(), MemoryImageStore())
    let (keeper, lease) = try await keeper(of: store, images, LogLines().logger)
    let name = try await markWithLostAnswer(store, images, for: lease.instance)
    #expect(await keeper.retry() == nil)
    #expect(images.digests.isEmpty)
    try await storeAgain(name.digest, in: images, by: keeper)
    await keeper.remove([name])
    #expect(images.digests == [name.digest])
  }

  @Test("an image that can't be deleted does not stop the others, and is deleted later")
  func stuck() async throws {
    let (store, images) = (MemoryJobStore(), MemoryImageStore())
    let (keeper, _) = try await keeper(of: store, images, LogLines().logger)
    let all = (0..<20).map { images.leaveOrphan([UInt8($0)]) }
    images.stick(all[7])
    await keeper.remove(all.map { ImageName($0) })
    #expect(await keeper.retry() != nil)
    #expect(images.digests == [all[7]])
    images.stick(nil)
    #expect(await keeper.retry() == nil)
    #expect(images.digests.isEmpty)
  }

  @Test("a caller deletes its own images and leaves failed ones to the next round")
  func own() async throws {
    let (store, images) = (MemoryJobStore(), MemoryImageStore())
    let (keeper, _) = try await keeper(of: store, images, LogLines().logger)
    let (left, mine) = (images.leaveOrphan([1]), images.leaveOrphan([2]))
    images.stick(left)
    await keeper.remove([ImageName(left)])
    images.stick(nil)
    await keeper.remove([ImageName(mine)])
    #expect(images.digests == [left])
    #expect(await keeper.retry() == nil)
    #expect(images.digests.isEmpty)
  }

  @Test("a job ends although the images evicted for it can't be deleted")
  func standingStill() async throws {
    // A small image is stored by the transaction that completes its job, which evicts the large one.
    let store = MemoryJobStore(largestEmbedded: ok.count)
    try await Workshop.open(store: store, { $0.maxStoredBytes = 100 }) { shop in
      shop.fetcher.answer(url, with: .pieces([ok + [UInt8](repeating: 1, count: 80)], total: nil))
      let old = try #require(try await shop.finished(shop.submit(url)).image)
      shop.images.holdRemovals()
      shop.fetcher.answer("http://b.example/", with: .pieces([ok], total: nil))
      let new = try await shop.finished(shop.submit("http://b.example/"))
      #expect(new.phase == .success && shop.images.digests == [old.digest])
      shop.images.holdRemovals(false)
      try await until { !shop.images.digests.contains(old.digest) }
    }
  }

  private let holder = JobIDSequence().next(at: Timestamp(milliseconds: 1))

  /// Leaves an image that the store has marked for deletion.
  private func mark(
    _ store: MemoryJobStore, _ images: MemoryImageStore, for instance: Instance
  ) async throws -> (image: ImageDigest, marked: [ImageName]) {
    let image = images.leaveOrphan(ok)
    _ = try await store.reserve(image, bytes: ok.count, as: holder, of: instance, limit: 99)
    try await store.release(holder)
    return (image, try await store.unreferencedImages(9, for: instance))
  }

  @Test("the number of images left to the next round is limited, and an image stored again is kept")
  func leftOver() async throws {
    let (store, images) = (MemoryJobStore(), MemoryImageStore())
    let (keeper, lease) = try await keeper(of: store, images, LogLines().logger)
    let (image, marked) = try await mark(store, images, for: lease.instance)
    let others = (1..<ImageLifecycle.maxPending).map {
      ImageName(MemoryImageStore.digest(of: Array("\($0)".utf8)))
    }
    await keeper.removeLater(marked + others)
    let one = images.leaveOrphan([1])
    await keeper.removeLater([ImageName(one)])
    #expect(images.digests == [image], "one too many")
    let staged = try await images.spool.stage()
    try staged.write(ok)
    #expect(try await keeper.save(staged, image, bytes: ok.count, as: holder, limit: 99))
    #expect(await keeper.retry() == nil)
    #expect(images.digests == [image])
  }

  @Test("many images are deleted in portions, with a pause for other work")
  func portions() async throws {
    let (store, images) = (MemoryJobStore(), MemoryImageStore())
    let (keeper, _) = try await keeper(of: store, images, LogLines().logger)
    let all = (0..<200).map { ImageName(images.leaveOrphan(Array("\($0)".utf8))) }
    await keeper.removeLater(all)
    #expect(await keeper.retry(within: .zero) == nil)
    #expect(images.digests.count == all.count - ImageLifecycle.portion)
    #expect(await keeper.retry(within: .seconds(60)) == nil)
    #expect(images.digests.isEmpty)
  }

  @Test("an image can be stored again at once while many others are being deleted")
  func outOfTurn() async throws {
    let (store, images) = (MemoryJobStore(), MemoryImageStore())
    let (keeper, lease) = try await keeper(of: store, images, LogLines().logger)
    let (image, marked) = try await mark(store, images, for: lease.instance)
    // An image whose deletion failed once comes last.
    images.stick(image)
    await keeper.remove(marked)
    images.stick(nil)
    let others = (0..<200).map { ImageName(images.leaveOrphan(Array("\($0)".utf8))) }
    await keeper.removeLater(others)
    images.holdRemovals(but: image)
    async let round = keeper.retry(within: .seconds(60))
    try await until { images.heldRemovals == 8 }
    let staged = try await images.spool.stage()
    try staged.write(ok)
    async let keeping = keeper.save(staged, image, bytes: ok.count, as: holder, limit: 99)
    try await until { try await store.isReserved(image) }
    let isKept = try await keeping
    images.holdRemovals(false)
    let failure = await round
    #expect(isKept && failure == nil)
    #expect(images.digests == [image])
  }

  @Test("images marked under a lease that has ended are not deleted")
  func marked() async throws {
    let (store, images) = (MemoryJobStore(), MemoryImageStore())
    let (keeper, lease) = try await keeper(of: store, images, LogLines().logger)
    let image = images.leaveOrphan(ok)
    images.stick(image)
    await keeper.remove([ImageName(image)])
    try await lease.begin()
    images.stick(nil)
    #expect(await keeper.retry() == nil)
    #expect(images.digests == [image], "it may be in use again")
  }

  @Test("a purge that failed halfway can be repeated")
  func purged() async throws {
    try await Workshop.open { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      let id = try await shop.finished(shop.submit(url)).id
      #expect(try await shop.store.cacheCounts().entries == 1)
      await shop.store.calls.fail(with: [failure], of: .cache)
      await #expect(throws: JobsError.store(failure)) {
        try await shop.engine.purge(id, for: Workshop.me)
      }
      #expect(try await shop.engine.job(id, for: Workshop.me).job.phase == .success)
      try await shop.engine.purge(id, for: Workshop.me)
      #expect(try await shop.store.cacheCounts().entries == 0)
      try await until { shop.images.digests.isEmpty }
    }
  }

  @Test("progress of a load is shown while the store does not finish another job")
  func shown() async throws {
    let goesOn = Latch()
    try await Workshop.open { shop in
      let other = "http://b.example/"
      shop.fetcher.answer(url, with: .hangs(after: ok))
      shop.fetcher.answer(other, with: .waits(after: ok, { await goesOn.wait() }, then: ok))
      await shop.store.calls.hold(.complete)
      _ = try await shop.submit(url)
      let hurried = try await shop.submit(url) {
        ($0.timeout, $0.maxAttempts) = (.milliseconds(300), 1)
      }
      // The job with the short timeout is being finished.
      try await until { await shop.store.calls.heldCalls > 0 }
      let id = try await shop.submit(other)
      let isShown = await poll(within: .seconds(5)) {
        shop.engine.peek(id, for: Workshop.me)?.job.progress.completed == ok.count
      }
      await shop.store.calls.letGo()
      goesOn.open()
      #expect(isShown)
      #expect(try await shop.finished(hurried).phase == .failure)
      #expect(try await shop.finished(id).phase == .success)
    }
  }

  @Test("deliveries stop at the limit per host while the store saves no results")
  func delivering() async throws {
    let receiver = SlowReceiver()
    try await Workshop.open(destinations: receiver) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: ok.count))
      shop.codec.hangs(true)
      let target = DeliveryRequest.Target.put(SourceURL("http://receiver.example/x")!, headers: [])
      var ids: [JobID] = []
      for _ in 0..<20 {
        ids.append(
          try await shop.submit(url) { $0.deliveries = [DeliveryRequest(target, variant: nil)] })
      }
      for id in ids { #expect(try await shop.reached(.loading, id).phase == .loading) }
      shop.codec.hangs(false)
      try await until { receiver.begun == DeliverySlots.perHost }
      await shop.store.calls.hold()
      receiver.open()
      // All begun deliveries are done and wait to be saved.
      try await until { await shop.store.calls.heldCalls >= DeliverySlots.perHost }
      try await Task.sleep(for: .milliseconds(100))
      let begun = receiver.begun
      await shop.store.calls.letGo()
      #expect(begun == DeliverySlots.perHost)
      for id in ids { #expect(try await shop.finished(id).phase == .success) }
      #expect(receiver.begun == 20 && shop.fetcher.requests.count == 1)
    }
  }

  @Test("a reservation whose release failed is released later")
  func released() async throws {
    let store = MemoryJobStore()
    let lines = LogLines()
    let (keeper, lease) = try await keeper(of: store, MemoryImageStore(), lines.logger)
    let holder = JobIDSequence().next(at: Timestamp(milliseconds: 1))
    let image = MemoryImageStore.digest(of: ok)
    _ = try await store.reserve(image, bytes: 9, as: holder, of: lease.instance, limit: 99)
    await store.calls.fail(with: [failure])
    await keeper.release(holder)
    #expect(
      try await store.isReserved(image) && lines.count("failed to release a reservation") == 1)
    _ = await keeper.retry()
    #expect(try await !store.isReserved(image))
  }
}

struct NoJobs: ClaimHolder {
  var claims: Set<Claim> { [] }
  func stopWork(under claim: Claim) -> Bool { false }
}

@Suite("The sweep after a start", .timeLimit(.minutes(15)))
struct SweepTests {
  private let url = "http://a.example/x.png"

  @Test("a sweep runs in the background, deletes orphans and retries when the store fails")
  func sweep() async throws {
    let (store, images) = (MemoryJobStore(), MemoryImageStore())
    let orphan = images.leaveOrphan([1, 2, 3])
    await store.calls.fail(with: [.full, .unavailable(detail: "away")], of: .markOrphans)
    try await Workshop.open(store: store, images: images) { shop in
      shop.fetcher.answer(url, with: .pieces([ok], total: nil))
      // The service is ready while the sweep still waits for its first query.
      let image = try #require(try await shop.finished(shop.submit(url)).image)
      try await until { !images.digests.contains(orphan) }
      #expect(images.digests == [image.digest])
      let other = try await store.register(for: .seconds(9))
      // The mark is removed after the file.
      try await until {
        try await store.reserve(orphan, bytes: 3, as: anyone, of: other, limit: .max)
          != .pendingDeletion
      }
    }
  }

  private var anyone: JobID { JobIDSequence().next(at: Timestamp(milliseconds: 1)) }

  @Test("a sweep deletes no image that a job stores at the same time")
  func published() async throws {
    for _ in 0..<30 {
      // A crash left the same bytes that the job is about to store.
      let (store, images) = (MemoryJobStore(), MemoryImageStore())
      let orphan = images.leaveOrphan(ok)
      try await Workshop.open(store: store, images: images) { shop in
        shop.fetcher.answer(url, with: .pieces([ok], total: nil))
        let image = try #require(try await shop.finished(shop.submit(url)).image)
        #expect(image.digest == orphan)
        try await until { await store.calls.count(of: .markOrphans) > 0 }
        #expect(images.digests == [orphan], "a job refers to it")
      }
    }
  }

  @Test("a sweep ends when the service stops, even if nothing was deleted yet")
  func stopped() async throws {
    let (store, images) = (MemoryJobStore(), MemoryImageStore())
    let orphan = images.leaveOrphan([1, 2, 3])
    await store.calls.fail(with: .init(repeating: .full, count: 1_000), of: .markOrphans)
    try await Workshop.open(store: store, images: images) { _ in }
    #expect(images.digests == [orphan])
  }
}
