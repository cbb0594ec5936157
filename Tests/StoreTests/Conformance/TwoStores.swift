import Jobs
import Synchronization
import TestSupport
import Testing

/// A store and ``StoreModel``. Both get the same calls and must return the same results.
struct TwoStores {
  private(set) var jobs: OpenJobs
  var store: StoreUnderTest { real }
  private var real: StoreUnderTest
  private let model: StoreModel
  /// The store as used by another instance; `nil` if it supports only one.
  private var other: StoreUnderTest?
  private var clock: ManualClock { real.clock }
  private var random: SeededNumbers
  /// All submitted jobs, and the claims of claimed ones. The stores assign different claim numbers.
  private var known: [JobID] = []
  private var claims: [(real: Claim, model: Claim)] = []
  private var holders: [JobID] = []
  private var moment: Timestamp { clock.now }

  init(_ adapter: StoreAdapter, seed: Int) throws {
    random = SeededNumbers(state: UInt64(seed))
    jobs = try OpenJobs(adapter)
    real = jobs.store
    let isShared = StoreAdapter.shared.contains(adapter)
    model = StoreModel(isShared: isShared, jobs.store.clock)
    if isShared { other = real.other }
  }

  /// Applies one random operation to both stores.
  mutating func step(_ step: Int) async throws {
    // Six steps are thirty seconds.
    clock.set(.at(Int64(step) * 5_000))
    switch number(0..<100) {
    case 0..<20: try await submit()
    case 20..<40: try await claim()
    case 40..<46: try await claimEqual()
    case 46..<60: try await update()
    case 60..<74: try await complete()
    case 74..<78: try await reserve()
    case 78..<80: try await keepVariant()
    case 80..<84: try await useCache()
    case 84..<88: try await dropFromCache()
    case 88..<91: try await clean()
    case 91..<93: try await expire()
    case 93..<94: try await forgetKeys()
    case 94..<96: try await remove()
    default: try await compareQueries()
    }
    if number(0..<60) == 0 { try await restart() }
    if number(0..<60) == 0 { try await loseInstance() }
  }

  private mutating func number(_ range: Range<Int>) -> Int { .random(in: range, using: &random) }

  private mutating func digest() -> ImageDigest { .sample(number(0..<8)) }

  private mutating func fingerprint() -> Fingerprint { Fingerprint(of: ["\(number(0..<5))"]) }

  private mutating func entry() throws -> CacheEntry {
    try .sample(
      number(0..<5), selector: number(0..<2), digest(), bytes: 50, response: number(0..<9))
  }
}

/// Variants.
extension TwoStores {
  private mutating func variant() -> StoredVariant {
    .sample(number(0..<3), number(0..<2), digest(), bytes: 50)
  }

  private mutating func keepVariant() async throws {
    let (variant, limit) = (variant(), [0, 49, 120, 250, .max][number(0..<5)])
    let holder = holders.randomElement(using: &random) ?? JobID(at: moment, using: &random)
    try await store.save(variant, within: limit, releasing: holder)
    model.save(variant, within: limit, releasing: holder)
  }
}

/// Jobs.
extension TwoStores {
  private mutating func submit() async throws {
    let jobs = (0..<number(1..<4)).map { _ in newJob() }
    let key = number(0..<8) == 0 ? idempotencyKey() : nil
    let outcome = try await store.submit(jobs, key: key, capacity: 30)
    #expect(model.submit(jobs, key: key, capacity: 30) == outcome)
    if outcome == .accepted { known += jobs.map(\.id) }
  }

  private mutating func idempotencyKey() -> IdempotencyKey {
    IdempotencyKey(
      owner: Owner("anna"), key: "\(number(0..<3))", fingerprint: .sample(number(0..<2)))
  }

  private mutating func newJob() -> Job {
    let tags = (0..<3).filter { _ in Bool.random(using: &random) }.map { "tag \($0)" }
    let kind = number(0..<8)
    var job = Job.sample(
      Int64(number(0..<3)), owner: ["anna", "bert", ""][number(0..<3)],
      priority: Priority.allCases[number(0..<5)], tags: tags,
      captured: kind == 0 ? (digest(), bytes: 50) : nil,
      url: "https://\(["a", "b", "c"][number(0..<3)]).example/\(number(0..<2))",
      at: moment.milliseconds - Timestamp.at(0).milliseconds,
      id: JobID(at: moment, using: &random))
    if kind == 1 { job.succeed(with: digest(), bytes: 50, at: moment) }
    return job
  }

  private mutating func claim() async throws {
    var room = OriginCapacity(
      usual: number(0..<3), exceptions: ["https://a.example": number(0..<2)])
    var count = number(1..<12)
    var user = store
    if let other {
      if number(0..<2) == 0 { user = other }
      // Use counts larger than the number of jobs: with fewer, the stores may read different parked
      // and waiting jobs.
      (room.usual, count) = (30, 30)
      room.exceptions = ["https://a.example": 30 * number(0..<2)]
      room.overall = OriginCapacity.Overall(
        transfers: number(1..<9), requestsPerSecond: [0, 0, 0.15][number(0..<3)],
        own: ["https://b.example": number(0..<2)])
    }
    let owners = ownerCapacity()
    let real = try await user.claim(count, at: moment, room: room, owners: owners)
    let expected = try await model.claim(
      count, for: user.instance, room: room, owners: owners)
    #expect(real.nextDue == expected.nextDue)
    compare(real.jobs, expected.jobs)
  }

  /// Returns a limit with some workers in use, or none.
  private mutating func ownerCapacity() -> OwnerCapacity {
    guard number(0..<2) == 0 else { return .unlimited }
    var workers = FairShare<Owner>()
    for name in ["anna", "bert"] { workers.acquireUnchecked(number(0..<4), for: Owner(name)) }
    return OwnerCapacity(workers, of: number(4..<32), at: moment)
  }

  private mutating func claimEqual() async throws {
    guard let id = known.randomElement(using: &random), let job = try await store.job(id),
      let request = job.request
    else { return }
    let (count, instance) = (number(0..<4), try await store.instance)
    compare(
      try await store.claim(equalTo: request, count: count, at: moment),
      model.claim(equalTo: request, count: count, for: instance))
  }

  private mutating func compare(
    _ real: [(job: Job, claim: Claim)], _ expected: [(job: Job, claim: Claim)]
  ) {
    #expect(real.map(\.job) == expected.map(\.job))
    claims += zip(real, expected).map { ($0.claim, $1.claim) }
  }

  private mutating func change() -> @Sendable (inout Job) -> Bool {
    let (roll, moment, digest) = (number(0..<8), moment, digest())
    let priority = Priority.allCases[number(0..<5)]
    let variant: SourceVariant = Bool.random(using: &random) ? .lowData : .regular
    return { job in
      switch (roll, job.phase) {
      case (0, .loading), (1, .loading):
        job.succeed(with: digest, bytes: 50, variant: variant, at: moment)
      case (2, .loading): job.fail(.notCached, at: moment, keptFor: .seconds(100))
      case (3, .loading):
        job.retry(after: .internal, from: .regular, notBefore: moment + .seconds(12))
      case (4, .loading): job.requeue()
      case (5, .loading): job.report(.init(completed: 5))
      case (0, .success): job.replaceImage(with: .sample(digest, bytes: 50), cache: nil)
      case (6, _): return job.cancel(at: moment, keptFor: .seconds(100))
      case (7, _): return job.fetchAgain(at: moment, from: .regular)
      default: return job.edit(priority: priority, tags: nil)
      }
      return true
    }
  }

  private mutating func update() async throws {
    guard let id = known.randomElement(using: &random) else { return }
    let change = change()
    let claim = Bool.random(using: &random) ? claims.last { $0.real.job == id } : nil
    let job = try await store.update(id, under: claim?.real, change)
    #expect(job == model.update(id, under: claim?.model, change))
  }

  private mutating func complete() async throws {
    let some = claims.suffix(12).shuffled(using: &random).prefix(number(0..<4))
    let holder = holders.randomElement(using: &random)
    let entry = number(0..<3) > 0 ? try entry() : nil
    let (limit, change) = ([0, 49, 120, 250, .max][number(0..<5)], change())
    var real = Completion(
      some.map(\.real), entry: entry, cacheLimit: limit, releasing: holder, change: change)
    real.claimsEqual = number(0..<2) == 0
    var expected = real
    expected.claims = some.map(\.model)
    expected.instance = some.first?.model.instance ?? .none
    let (done, should) = (try await store.complete(real), model.complete(expected))
    #expect(done.jobs == should.jobs && done.evicted == should.evicted)
    compare(
      done.claimedEqual.map { ($0.job, $0.claim) }, should.claimedEqual.map { ($0.job, $0.claim) })
  }

  private mutating func remove() async throws {
    guard let id = known.randomElement(using: &random) else { return }
    #expect(try await store.remove(id, if: { _ in true }) == model.remove(id))
  }

  private func expire() async throws {
    #expect(try await Set(store.expire(999, at: moment)) == model.expire())
  }

  private mutating func forgetKeys() async throws {
    // The order of equally old keys differs, so delete all or none.
    let (end, count) = (moment + .seconds(-60), [0, 999][number(0..<2)])
    let deleted = try await store.deleteKeys(before: end, count: count)
    #expect(deleted == model.deleteKeys(before: end, count: count))
  }

  private mutating func restart() async throws {
    real = try await jobs.reopened(after: real)
    model.restart()
    if other != nil { other = real.other }
    #expect(try await store.recover() == model.recover())
    holders = []
  }

  /// Ends the instance's lease while the store stays open. Its jobs are requeued at once or later.
  private mutating func loseInstance() async throws {
    try await store.base.retire(store.instance)
    try await model.retire(store.instance)
    store.becomeAnother()
    // These holders belong to the lost instance, so they are not used any more.
    holders = []
    guard Bool.random(using: &random) else { return }
    #expect(try await store.recover() == model.recover())
  }
}

/// Images and the cache.
extension TwoStores {
  private mutating func reserve() async throws {
    let holder = number(0..<3) == 0 ? holders.randomElement(using: &random) : nil
    if let holder, Bool.random(using: &random) {
      try await store.release(holder)
      model.release(holder)
      return
    }
    let name = holder ?? JobID(at: moment, using: &random)
    let (digest, limit) = (digest(), 50 * number(2..<9))
    let real = try await store.reserve(digest, bytes: 50, as: name, limit: limit)
    let instance = try await store.instance
    #expect(model.reserve(digest, bytes: 50, as: name, of: instance, limit: limit) == real)
    guard case .reserved(let evicted) = real else { return }
    holders.append(name)
    // Later changes use any image, so no image may stay pending deletion.
    try await store.confirmDeletion(evicted)
  }

  private mutating func clean() async throws {
    let real = try await store.unreferencedImages(99)
    #expect(model.evictUnreferenced() == Set(real))
    try await store.confirmDeletion(real)
  }

  private mutating func useCache() async throws {
    let entry = try entry()
    try await store.touch([entry.id: moment])
    model.touch(entry.id)
  }

  private mutating func dropFromCache() async throws {
    switch number(0..<6) {
    case 0: #expect(try await store.clear() == model.clear())
    case 1, 2:
      let key = fingerprint()
      #expect(try await store.delete(key: key) == model.delete(key: key))
    case 3:
      let key = variant().id.key
      #expect(try await store.delete(key: key) == model.delete(key: key))
    default:
      let ids = try [entry().id, entry().id]
      try await store.delete(ids)
      model.delete(ids)
    }
  }

  private mutating func compareQueries() async throws {
    let keys = (0..<5).map { Fingerprint(of: ["\($0)"]) }
    #expect(try await store.entries(for: keys) == model.entries(for: keys))
    let variant = variant().id
    #expect(try await store.variant(variant) == model.variant(variant))
    let (after, count) = (known.randomElement(using: &random), number(0..<5))
    let low = try await store.jobsWithLowDataImages(after: after, count: count)
    #expect(low == model.jobsWithLowDataImages(after: after, count: count))
    let digest = digest()
    #expect(try await store.refers(to: digest) == model.refers(to: digest))
    let orphans = try await store.markOrphans([digest])
    #expect(orphans == (model.isOrphan(digest) ? [digest] : []))
    // Later changes use any image, so no image may stay pending deletion.
    try await store.confirmDeletion(orphans)
  }

  /// Expects the same content in both stores.
  func compareEverything() async throws {
    for id in known { #expect(try await store.job(id) == model.job(id)) }
    let (real, expected) = (try await store.counts(), model.counts())
    for phase in Phase.allCases { #expect(real.jobs[phase] == expected.jobs[phase] ?? 0) }
    #expect(real.images == expected.images && real.imageBytes == expected.imageBytes)
    #expect(try await store.cacheCounts() == model.cacheCounts())
  }

  /// Expects the store's counters to match its rows.
  func audit() async throws {
    try await store.audit()
  }
}
