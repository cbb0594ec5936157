import TestSupport
import Testing

@testable import Jobs

/// A store that does what a chooser says, and the same decision made by comparing all jobs.
private struct Bench {
  enum State { case ready, deferred, due, loading }
  struct Entry {
    var job: QueuedCandidate
    var state = State.ready
  }

  static let moment = Timestamp(milliseconds: 1_000_000)
  private(set) var entries: [Int64: Entry] = [:]
  var queues = ClaimableJobs()
  private var last: Int64 = 0
  private var served: [JobQueueName: Int] = [:]
  private var servedOwners: [Owner: Int] = [:]
  /// The positions whose pages were read by the last claim.
  private(set) var read: [QueuePosition] = []
  var now = Bench.moment
  /// The largest page.
  var page = Int.max

  /// Queues a job.
  @discardableResult
  mutating func add(
    _ owner: String = "anna", batch: Int64 = 0, priority: Int = 2, origin: String? = "a",
    age: Duration = .zero, notBefore: Timestamp? = nil
  ) -> Int64 {
    last += 1
    let queue = JobQueueName(owner: Owner(owner), batch: batch)
    let job = QueuedCandidate(
      number: last, id: JobID(at: now + (.zero - age)),
      position: QueuePosition(priority: priority, queue: queue), rank: last, notBefore: notBefore,
      origin: origin)
    entries[last] = Entry(job: job, state: .due)
    if QueueOrder.isDue(notBefore, at: now) { set(last, to: .ready) }
    return last
  }

  /// Changes a job's state and records it in the queues.
  private mutating func set(_ number: Int64, to state: State) {
    guard let entry = entries[number] else { return }
    switch entry.state {
    case .ready: queues.ready.addReady(-1, at: entry.job.position)
    case .deferred:
      let served = queues.ready.served.lastTurn(of: entry.job.position.queue)
      queues.deferred.remove(entry.job, served: served)
    case .loading: queues.ready.addLoading(-1, of: entry.job.position.queue)
    case .due: break
    }
    entries[number]?.state = state
    switch state {
    case .ready: queues.ready.addReady(1, at: entry.job.position)
    case .deferred: queues.deferred.add(entry.job)
    case .loading: queues.ready.addLoading(1, of: entry.job.position.queue)
    case .due: break
    }
  }

  mutating func finish(_ number: Int64) {
    set(number, to: .due)
    entries[number] = nil
  }

  var loading: [Int64] { entries.filter { $0.value.state == .loading }.keys.sorted() }
  var deferred: [Int64] { entries.filter { $0.value.state == .deferred }.keys.sorted() }

  /// Claims jobs as a store does.
  /// - Returns: The numbers of the jobs, in order.
  mutating func claim(
    _ count: Int, room: OriginCapacity = .unlimited, owners: OwnerCapacity = .unlimited,
    maxDeferred: Int = .max, heads: Bool = false
  ) -> [Int64] {
    for (number, entry) in entries
    where entry.state == .due && QueueOrder.isDue(entry.job.notBefore, at: now) {
      set(number, to: .ready)
    }
    var chooser = ClaimChooser(
      count, at: now, room: room, owners: owners, maxDeferred: maxDeferred)
    if heads {
      for job in ready.reversed() {
        chooser.addHead(job.id!, rank: job.rank, at: job.position)
      }
    }
    var claimed: [Int64] = []
    read = []
    while true {
      switch chooser.next(from: &queues) {
      case .claim(let job):
        set(job.number, to: .loading)
        claimed.append(job.number)
        served[job.position.queue] = queues.ready.served.turns
        servedOwners[job.position.queue.owner] = queues.ready.served.turns
      case .deferJob(let job): set(job.number, to: .deferred)
      case .postpone(let job): set(job.number, to: .due)
      case .readReady(let position, let count):
        read.append(position)
        let all = ready.filter { $0.position == position }
        let jobs = Array(all.prefix(min(count, page)))
        chooser.add(jobs, at: position, hasMore: jobs.count < all.count)
      case .readDeferred(let origin, let position):
        let first = entries.values.filter {
          $0.state == .deferred && $0.job.origin == origin && $0.job.position == position
        }.map(\.job).min { $0.rank < $1.rank }
        queues.deferred.setFirst(first, of: origin, at: position)
      case .end: return claimed
      }
    }
  }

  /// The ready jobs by rank.
  var ready: [QueuedCandidate] {
    entries.values.filter { $0.state == .ready }.map(\.job).sorted { $0.rank < $1.rank }
  }

  /// The model: what a claim has to return.
  func expected(_ count: Int, room: OriginCapacity, owners: OwnerCapacity) -> [Int64] {
    var (model, room, owners, turn) = (self, room, owners, queues.ready.served.turns)
    var claimed: [Int64] = []
    while claimed.count < count, let job = model.first(after: turn, room, owners) {
      claimed.append(job.number)
      model.entries[job.number]?.state = .loading
      turn += 1
      model.served[job.position.queue] = turn
      model.servedOwners[job.position.queue.owner] = turn
      room.countTransfer(to: job.origin)
      owners.countJob(of: job.position.queue.owner)
    }
    return claimed
  }

  private func first(
    after turn: Int, _ room: OriginCapacity, _ owners: OwnerCapacity
  ) -> QueuedCandidate? {
    let candidates = entries.values.filter {
      $0.state != .loading && QueueOrder.isDue($0.job.notBefore, at: now)
        && room[$0.job.origin] > 0 && owners.hasCapacity(for: $0.job.position.queue.owner)

    }.map(\.job)
    let heads = Dictionary(grouping: candidates, by: \.position).values.compactMap { jobs in
      jobs.min { $0.rank < $1.rank }
    }
    if QueueOrder.choosesByAge(after: turn), let oldest = heads.min(by: { $0.id! < $1.id! }),
      QueueOrder.isOld(oldest.id!, at: now)
    {
      return oldest
    }
    let owners = QueueOrder.choosesByOwner(after: turn)
    return heads.map { (job: $0, key: key(of: $0, owners: owners)) }
      .min { $0.key.lexicographicallyPrecedes($1.key) }?.job
  }

  /// The values that are compared, from the most important one.
  private func key(of job: QueuedCandidate, owners: Bool) -> [Int] {
    let queue = job.position.queue
    let loading = entries.values.filter {
      $0.state == .loading && $0.job.position.queue.owner == queue.owner
    }
    let owner = [loading.count, servedOwners[queue.owner] ?? 0]
    let ofQueue = [
      loading.count { $0.job.position.queue == queue }, served[queue] ?? 0,
    ]
    let priority = [-job.position.priority]
    // Names in the tests have one letter; its value is the arbitrary order of equal owners.
    let name = [Int(queue.owner.name.utf8.first ?? 0), Int(queue.batch)]
    return (owners ? owner + priority : priority + owner) + ofQueue + name
  }
}

@Suite("The choice of the next jobs")
struct ClaimChooserTests {
  @Test("priorities and owners take turns in being compared first")
  func priorities() {
    var bench = Bench()
    let low = (0..<4).map { _ in bench.add("a", priority: 1) }
    let high = (0..<4).map { _ in bench.add("b", priority: 3) }
    // The owners are equal at first. Then every second turn, from the first one, compares their loading jobs.
    #expect(bench.claim(4) == [high[0], high[1], low[0], high[2]])
    for number in bench.loading { bench.finish(number) }
    #expect(bench.claim(3) == [low[1], high[3], low[2]])
  }

  @Test("an owner's batches take turns with the owner's single jobs, each in submission order")
  func batches() {
    var bench = Bench()
    let batch = (0..<3).map { _ in bench.add(batch: 1) }
    let single = (0..<3).map { _ in bench.add() }
    #expect(
      bench.claim(6) == [single[0], batch[0], single[1], batch[1], single[2], batch[2]])
  }

  @Test("among owners with equally many loading jobs, the one served longest ago is next")
  func longestAgo() {
    var bench = Bench()
    for _ in 0..<4 { for owner in ["a", "b", "c"] { bench.add(owner) } }
    var owners: [String] = []
    for _ in 0..<9 {
      let number = bench.claim(1)[0]
      owners.append(bench.entries[number]!.job.position.queue.owner.name)
      bench.finish(number)
    }
    #expect(owners == ["a", "b", "c", "a", "b", "c", "a", "b", "c"])
  }

  @Test("a job whose origin has no capacity is skipped and keeps its place")
  func capacity() {
    var bench = Bench()
    let busy = (0..<3).map { _ in bench.add(origin: "busy") }
    let free = (0..<2).map { _ in bench.add(origin: "free") }
    let none = OriginCapacity(usual: .max, exceptions: ["busy": 0])
    #expect(bench.claim(1, room: none) == [free[0]])
    #expect(bench.deferred == busy)
    let one = OriginCapacity(usual: .max, exceptions: ["busy": 1])
    #expect(bench.claim(9, room: one) == [busy[0], free[1]])
    #expect(bench.claim(9) == [busy[1], busy[2]])
  }

  @Test("a claim ends when it has deferred as many jobs as it may, and the next one continues")
  func limit() {
    var bench = Bench()
    for _ in 0..<5 { bench.add(origin: "busy") }
    let free = bench.add(origin: "free")
    let none = OriginCapacity(usual: .max, exceptions: ["busy": 0])
    #expect(bench.claim(1, room: none, maxDeferred: 3).isEmpty)
    #expect(bench.deferred.count == 3)
    #expect(bench.claim(1, room: none, maxDeferred: 3) == [free])
  }

  @Test("a due time is in the past, or so far away that only a changed clock explains it")
  func due() {
    let (now, day) = (Bench.moment, Duration.seconds(86_400))
    #expect(QueueOrder.isDue(nil, at: now))
    #expect(QueueOrder.isDue(now, at: now))
    #expect(!QueueOrder.isDue(now + .milliseconds(1), at: now))
    #expect(!QueueOrder.isDue(now + day, at: now, longestWait: day))
    #expect(QueueOrder.isDue(now + day + .milliseconds(1), at: now, longestWait: day))
  }

  @Test("an old job is chosen soon, whatever its priority and however many owners have new jobs")
  func starvation() {
    var bench = Bench()
    let old = bench.add("old", priority: 0, age: .seconds(31))
    // Its owner has more loading jobs than any other.
    for _ in 0..<50 { bench.add("old", batch: 7, priority: 4) }
    for owner in 0..<100 { for _ in 0..<20 { bench.add("owner \(owner)", priority: 4) } }
    var claims = 0
    while bench.entries[old]?.state != .loading, claims < 100 {
      claims += 1
      _ = bench.claim(1)
    }
    #expect(claims <= 8)
  }

  @Test("every job is chosen in the end, while other owners submit jobs all the time")
  func progress() {
    var bench = Bench()
    let first = (0..<20).map { bench.add(["a", "b"][$0 % 2], batch: Int64($0 % 3), priority: 0) }
    for _ in 0..<400 {
      bench.now = bench.now + .seconds(1)
      for owner in ["c", "d", "e"] { bench.add(owner, priority: 4) }
      for number in bench.claim(2) { bench.finish(number) }
    }
    #expect(first.allSatisfy { bench.entries[$0] == nil })
  }

  @Test("a position's page is read only if its first job is next, if the first jobs are known")
  func heads() {
    var bench = Bench()
    for owner in 0..<200 { bench.add("owner \(owner)", age: .seconds(40)) }
    let oldest = bench.add("z", priority: 0, age: .seconds(90))
    let claimed = bench.claim(8, heads: true)
    #expect(claimed.count == 8 && bench.read.count == 8)
    #expect(claimed.last == oldest)
  }

  @Test("a prediction covers what a claim chooses if all jobs can be claimed", arguments: 1...40)
  func prediction(seed: Int) {
    var random = SeededNumbers(state: UInt64(seed))
    var bench = Bench()
    for _ in 0..<Int.random(in: 1...60, using: &random) { bench.addRandom(&random) }
    _ = bench.claim(Int.random(in: 0...9, using: &random))
    let count = min(Int.random(in: 1...40, using: &random), bench.ready.count)
    let available = Dictionary(grouping: bench.ready, by: \.position)
    var chooser = ClaimChooser(count, at: bench.now, room: .unlimited, owners: .unlimited)
    for (position, jobs) in available {
      chooser.addHead(jobs[0].id!, rank: jobs[0].rank, at: position)
    }
    let predicted = chooser.prediction(
      of: count, from: bench.queues, available: available.mapValues { .some($0.count) })
    var chosen: [QueuePosition: Int] = [:]
    for number in bench.claim(count) {
      chosen[bench.entries[number]!.job.position, default: 0] += 1
    }
    // Only the age of first jobs is known in advance. It decides every eighth turn at most.
    let missed = chosen.reduce(0) { $0 + max(0, $1.value - (predicted[$1.key] ?? 0)) }
    #expect(missed <= count / 8 + 1)
    #expect(predicted.values.reduce(0, +) <= count + available.count)
  }

  @Test("the choice is that of a model that compares all jobs", arguments: 1...60)
  func model(seed: Int) {
    var random = SeededNumbers(state: UInt64(seed))
    var bench = Bench()
    for _ in 0..<40 {
      bench.now = bench.now + .seconds(Int.random(in: 0...9, using: &random))
      bench.page = Int.random(in: 1...8, using: &random)
      for _ in 0..<Int.random(in: 0...6, using: &random) { bench.addRandom(&random) }
      for number in bench.loading where Int.random(in: 0..<4, using: &random) == 0 {
        bench.finish(number)
      }
      var room = OriginCapacity(usual: Int.random(in: 0...4, using: &random))
      room.exceptions["b"] = Int.random(in: -1...2, using: &random)
      var workers = FairShare<Owner>()
      for number in bench.loading {
        workers.acquireUnchecked(1, for: bench.entries[number]!.job.position.queue.owner)
      }
      let all = Bool.random(using: &random) ? 8 : 1_000
      let owners = OwnerCapacity(workers, of: all, at: bench.now)
      let count = Int.random(in: 1...9, using: &random)
      // A known first job stands for its position's age, even if its origin has no capacity.
      let heads = Bool.random(using: &random)
      if heads { room = .unlimited }
      let expected = bench.expected(count, room: room, owners: owners)
      #expect(bench.claim(count, room: room, owners: owners, heads: heads) == expected)
    }
  }
}

extension Bench {
  /// Queues any job.
  fileprivate mutating func addRandom(_ random: inout SeededNumbers) {
    // Batch 1 belongs to owner a.
    let owner = ["a", "b", "c", "d"].randomElement(using: &random)!
    let batch: Int64 = owner == "a" ? .random(in: 0...2, using: &random) : 0
    let wait = Int.random(in: 0..<5, using: &random) == 0
    add(
      owner, batch: batch, priority: .random(in: 0...4, using: &random),
      origin: ["a", "b", "c", nil].randomElement(using: &random)!,
      age: .milliseconds(Int.random(in: 0...60_000, using: &random)),
      notBefore: wait ? now + .seconds(Int.random(in: -5...20, using: &random)) : nil)
  }
}
