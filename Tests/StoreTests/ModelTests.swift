import Jobs
import Testing

@testable import Store

/// Random numbers that a seed repeats (SplitMix64).
struct SeededNumbers: RandomNumberGenerator {
  var state: UInt64

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = state
    mixed = (mixed ^ mixed >> 30) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ mixed >> 27) &* 0x94D0_49BB_1331_11EB
    return mixed ^ mixed >> 31
  }
}

/// What the contract says, with nothing but arrays: slow and plain.
private struct Model {
  struct Entry {
    var job: Job
    var rank: Int
    var claim: Claim?
  }
  var entries: [Entry] = []
  var last = 0
  var first = 0

  func index(_ id: JobID) -> Int? { entries.firstIndex { $0.job.id == id } }

  mutating func submit(_ jobs: [Job], capacity: Int) -> SubmitOutcome {
    guard entries.count(where: { $0.job.phase == .queued }) + jobs.count <= capacity else {
      return .queueFull
    }
    for job in jobs {
      last += 1
      entries.append(Entry(job: job, rank: last))
    }
    return .accepted
  }

  /// The claims' numbers are the store's to choose.
  mutating func claim(_ count: Int, at moment: Timestamp) -> [JobID] {
    let due = entries.filter { $0.job.phase == .queued && $0.job.notBefore ?? moment <= moment }
    let order = due.sorted {
      $0.job.priority == $1.job.priority ? $0.rank < $1.rank : $0.job.priority > $1.job.priority
    }
    for entry in order.prefix(count) {
      if let index = index(entry.job.id) { entries[index].job.start(at: moment) }
    }
    return order.prefix(count).map(\.job.id)
  }

  mutating func update(_ id: JobID, under claim: Claim?, _ change: (inout Job) -> Bool) -> Job? {
    guard let index = index(id), claim == nil || entries[index].claim == claim else { return nil }
    let before = entries[index].job
    guard change(&entries[index].job) else { return before }
    let after = entries[index].job
    if after.priority > before.priority || (before.phase.isFinished && after.phase == .queued) {
      last += 1
      entries[index].rank = last
    } else if after.priority < before.priority {
      first -= 1
      entries[index].rank = first
    }
    if after.phase != .loading { entries[index].claim = nil }
    return after
  }
}

@Suite("The store against a model of the contract")
struct ModelTests {
  @Test("whatever is done in whatever order, both tell the same", arguments: 1...4)
  func agrees(seed: Int) async throws {
    let jobs = try OpenJobs()
    var store = jobs.store
    var model = Model()
    var random = SeededNumbers(state: UInt64(seed))
    for step in 0..<250 {
      let moment = Timestamp.at(Int64(step * 10))
      switch Int.random(in: 0..<40, using: &random) {
      case 0..<10:
        let batch = (0..<Int.random(in: 1...3, using: &random)).map { _ in
          Job.random(at: step, using: &random)
        }
        #expect(
          try await store.submit(batch, key: nil, capacity: 20)
            == model.submit(batch, capacity: 20))
      case 10..<16:
        try await Self.claim(Int.random(in: 1...3, using: &random), at: moment, store, &model)
      case 16..<36:
        try await Self.change(at: moment, store, &model, &random)
      case 36:
        if let entry = model.entries.randomElement(using: &random) {
          #expect(try await store.remove(entry.job.id))
          model.entries.removeAll { $0.job.id == entry.job.id }
        }
      case 37, 38:
        let due = model.entries.filter { $0.job.expiresAt ?? .at(.max / 2) <= moment }
        #expect(try await Set(store.expire(at: moment, count: 99)) == Set(due.map(\.job.id)))
        model.entries.removeAll { $0.job.expiresAt ?? .at(.max / 2) <= moment }
      default:
        await store.close()
        store = try jobs.folder.openJobs()
        let loading = model.entries.indices.filter { model.entries[$0].job.phase == .loading }
        #expect(try await store.recover() == loading.count)
        for index in loading {
          model.entries[index].job.requeueAfterCrash()
          model.entries[index].claim = nil
        }
      }
    }
    for entry in model.entries { #expect(try await store.job(entry.job.id) == entry.job) }
    try store.audit()
    await store.close()
  }

  private static func claim(
    _ count: Int, at moment: Timestamp, _ store: SQLiteJobStore, _ model: inout Model
  ) async throws {
    let claimed = try await store.claim(count, at: moment)
    #expect(claimed.jobs.map(\.job.id) == model.claim(count, at: moment))
    for (job, claim) in claimed.jobs {
      let index = try #require(model.index(job.id))
      #expect(model.entries[index].job == job)
      model.entries[index].claim = claim
    }
    let waiting = model.entries.filter {
      $0.job.phase == .queued && $0.job.notBefore ?? moment > moment
    }
    #expect(claimed.nextDue == waiting.compactMap(\.job.notBefore).min())
  }

  private static func change(
    at moment: Timestamp, _ store: SQLiteJobStore, _ model: inout Model,
    _ random: inout SeededNumbers
  ) async throws {
    guard let entry = model.entries.randomElement(using: &random) else { return }
    let roll = Int.random(in: 0..<8, using: &random)
    let priority = Priority.allCases.randomElement(using: &random)
    let change: @Sendable (inout Job) -> Bool = { job in
      switch (roll, job.phase) {
      case (0, .loading): job.succeed(with: .sample(1), bytes: 5, at: moment)
      case (1, .loading): job.fail(.notCached, at: moment, keptFor: .milliseconds(300))
      case (2, .loading): job.retry(notBefore: moment + .milliseconds(40))
      case (3, .loading): job.putBack()
      case (4, .loading): job.report(.init(completed: 5))
      case (5, _): return job.cancel(at: moment, keptFor: .milliseconds(200))
      case (6, _): return job.fetchAgain(at: moment)
      default: return job.edit(priority: priority, tags: nil)
      }
      return true
    }
    let claim = Bool.random(using: &random) ? entry.claim : nil
    #expect(
      try await store.update(entry.job.id, under: claim, change)
        == model.update(entry.job.id, under: claim, change))
  }

  @Test("counts and references don't drift, however many do whatever at once", arguments: 1...2)
  func concurrentOperations(seed: Int) async throws {
    let jobs = try OpenJobs()
    let store = jobs.store
    try await withThrowingTaskGroup(of: Void.self) { group in
      for worker in 0..<12 {
        group.addTask { try await Self.work(store, seed: UInt64(seed * 100 + worker)) }
      }
      try await group.waitForAll()
    }
    try store.audit()
    let counts = try await store.counts()
    #expect(counts.imageBytes <= 300)
    let reopened = try await jobs.reopened()
    #expect(try await reopened.counts() == counts)
    _ = try await reopened.recover()
    try reopened.audit()
    await reopened.close()
  }

  /// A client, a worker and a cleaner in one.
  private static func work(_ store: SQLiteJobStore, seed: UInt64) async throws {
    var random = SeededNumbers(state: seed)
    for step in 0..<20 {
      let digest = ImageDigest.sample(Int.random(in: 0..<12, using: &random))
      let captured = Bool.random(using: &random)
      let job = Job.random(at: step, captured: captured ? (digest, 50) : nil, using: &random)
      if captured {
        let room = try await store.reserve(digest, bytes: 50, for: .upcoming(job.id), limit: 300)
        guard try await cleaned(room, store) else { continue }
      }
      if Int.random(in: 0..<6, using: &random) == 0 {
        try await store.release(job.id)
      } else {
        _ = try await store.submit([job], key: nil, capacity: .max)
      }
      for (job, claim) in try await store.claim(2, at: .at(5_000)).jobs {
        let room = try await store.reserve(digest, bytes: 50, for: .claim(claim), limit: 300)
        let hasRoom = try await cleaned(room, store)
        _ = try await store.update(job.id, under: claim) {
          if hasRoom {
            $0.succeed(with: digest, bytes: 50, at: .at(Int64(step)))
          } else {
            $0.fail(.storageFull, at: .at(Int64(step)), keptFor: .milliseconds(1))
          }
          return true
        }
        if Bool.random(using: &random) { _ = try await store.remove(job.id) }
      }
      _ = try await store.expire(at: .at(Int64(step)), count: 1)
      try await store.forget(store.abandonedImages(1))
    }
  }

  private static func cleaned(_ room: Reservation, _ store: SQLiteJobStore) async throws -> Bool {
    guard case .reserved(let gaveWay) = room else { return false }
    try await store.forget(gaveWay)
    return true
  }
}

extension Job {
  fileprivate static func random(
    at step: Int, captured: (ImageDigest, bytes: Int)? = nil, using random: inout SeededNumbers
  ) -> Job {
    let tags = (0..<3).filter { _ in Bool.random(using: &random) }.map { "tag \($0)" }
    return .sample(
      Int64(step * 10), owner: ["anna", "bert", ""].randomElement(using: &random) ?? "",
      priority: Priority.allCases.randomElement(using: &random) ?? .normal, tags: tags,
      captured: captured)
  }
}
