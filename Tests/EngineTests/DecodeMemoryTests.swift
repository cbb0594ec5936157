import TestSupport
import Testing
import Waiting

@testable import Engine
@testable import Jobs

@Suite("Memory shared by decodes", .timeLimit(.minutes(15)))
struct DecodeMemoryTests {
  @Test("decodes that need more memory than is free wait and are served in order")
  func order() async throws {
    let memory = DecodeMemory(bytes: 100)
    var first = await memory.reserve(60)
    #expect(first != nil)
    let second = Task { await memory.reserve(60) != nil }
    while memory.waiting < 1 { await Task.yield() }
    let third = Task { await memory.reserve(10) != nil }
    while memory.waiting < 2 { await Task.yield() }
    first = nil
    #expect(await second.value)
    #expect(await third.value)
  }

  @Test("a decode that needs little memory never waits")
  func small() async {
    let memory = DecodeMemory(bytes: 1000)
    let all = await memory.reserve(1000)
    #expect(await memory.reserve(3) != nil)
    _ = all
  }

  @Test("a decode that asks for more memory than exists gets all of it")
  func all() async {
    let memory = DecodeMemory(bytes: 100)
    #expect(await memory.reserve(1000) != nil)
  }

  @Test("a cancelled decode leaves the line and blocks no other")
  func cancelled() async {
    let memory = DecodeMemory(bytes: 100)
    let first = await memory.reserve(60)
    let second = Task { await memory.reserve(60) == nil }
    while memory.waiting < 1 { await Task.yield() }
    let third = Task { await memory.reserve(10) != nil }
    while memory.waiting < 2 { await Task.yield() }
    second.cancel()
    #expect(await second.value)
    #expect(await third.value)
    _ = first
  }

  @Test("images that are downloading use at most half of the memory, and none while others wait")
  func whileLoading() async {
    let memory = DecodeMemory(bytes: 1000)
    var first = memory.reserveWhileDownloading(500)
    #expect(first != nil)
    #expect(memory.reserveWhileDownloading(4) == nil)
    #expect(memory.reserveWhileDownloading(3) != nil, "a small part is always available")
    first = nil
    #expect(memory.reserveWhileDownloading(501) == nil)
    var most = await memory.reserve(900)
    #expect(!memory.isWanted)
    let waits = Task { await memory.reserve(200) != nil }
    while memory.waiting < 1 { await Task.yield() }
    #expect(memory.reserveWhileDownloading(100) == nil)
    #expect(memory.isWanted)
    most = nil
    #expect(await waits.value && most == nil)
  }

  private func loads(_ shop: Workshop, after count: Int) async throws {
    while shop.fetcher.requests.count < count { await Task.yield() }
  }

  @Test("an origin that sends only the beginning of a large image blocks no other image")
  func slowOrigin() async throws {
    try await Workshop.open({ ($0.workers, $0.limits.maxMemory) = (8, 1500) }) { shop in
      for number in 0..<3 {
        shop.fetcher.answer("http://slow\(number).example/", with: .hangs(after: ok))
        let slow = try await shop.submit("http://slow\(number).example/")
        while try await shop.engine.job(slow, for: Workshop.me).job.progress.completed < ok.count {
          try await Task.sleep(for: .milliseconds(2))
        }
      }
      shop.fetcher.answer("http://b.example/", with: .pieces([ok], total: nil))
      #expect(try await shop.finished(shop.submit("http://b.example/")).phase == .success)
    }
  }

  @Test("an image whose decode was deferred is decoded from all its bytes at the end")
  func putOff() async throws {
    let goesOn = Latch()
    try await Workshop.open({ $0.limits.maxMemory = 1500 }) { shop in
      let rest = Array(" and more".utf8)
      shop.fetcher.answer(
        "http://a.example/", with: .waits(after: ok, { await goesOn.wait() }, then: rest))
      let id = try await shop.submit("http://a.example/")
      try await loads(shop, after: 1)
      goesOn.open()
      let job = try await shop.finished(id)
      #expect(job.phase == .success && job.image?.digest == MemoryImageStore.digest(of: ok + rest))
      #expect(shop.codec.decoded.contains(ok + rest))
    }
  }

  @Test("an image whose decoder lost its bytes is decoded again from all of them")
  func again() async throws {
    let goesOn = Latch()
    try await Workshop.open { shop in
      shop.codec.losesBytes(true)
      let rest = Array(" and more".utf8)
      shop.fetcher.answer(
        "http://a.example/", with: .waits(after: ok, { await goesOn.wait() }, then: rest))
      shop.fetcher.answer("http://b.example/", with: .pieces([ok], total: ok.count))
      let parts = try await shop.submit("http://a.example/")
      try await loads(shop, after: 1)
      goesOn.open()
      let whole = try await shop.submit("http://b.example/")
      for (id, bytes) in [(parts, ok + rest), (whole, ok)] {
        let job = try await shop.finished(id)
        #expect(job.phase == .success && job.image?.digest == MemoryImageStore.digest(of: bytes))
        #expect(shop.codec.decoded.contains(bytes))
      }
      #expect(shop.codec.begun == 2)
    }
  }

  @Test("memory of an image that is downloading is released for one that needs more than is free")
  func givenBack() async throws {
    let goesOn = Latch()
    try await Workshop.open({ $0.limits.maxMemory = 3000 }) { shop in
      let rest = Array(" and more".utf8)
      shop.fetcher.answer(
        "http://a.example/", with: .waits(after: ok, { await goesOn.wait() }, then: rest))
      let slow = try await shop.submit("http://a.example/")
      while try await shop.engine.job(slow, for: Workshop.me).job.progress.completed < ok.count {
        try await Task.sleep(for: .milliseconds(2))
      }
      shop.codec.needs(memory: 3000)
      shop.fetcher.answer("http://b.example/", with: .pieces([ok], total: ok.count))
      let large = try await shop.submit("http://b.example/")
      while shop.engine.loading.loader.urls.ingest.memory.waiting < 1 { await Task.yield() }
      goesOn.open()
      #expect(try await shop.finished(large).phase == .success)
      let job = try await shop.finished(slow)
      #expect(job.phase == .success && job.image?.digest == MemoryImageStore.digest(of: ok + rest))
      #expect(shop.codec.decoded.contains(ok + rest))
    }
  }

  /// More bytes than a decoder may hold without reserved memory, and the bytes after them.
  private static let start = ok + [UInt8](repeating: 0, count: 2 * Decode.freeBytes)
  private static let rest = Array(" and more".utf8)

  /// Delivers all but the rest of an image. Its header is complete with the rest only.
  private static func begin(_ shop: Workshop, _ goesOn: Latch) async throws -> JobID {
    shop.codec.headerComes(after: start.count + 1)
    shop.fetcher.answer(
      "http://a.example/", with: .waits(after: start, { await goesOn.wait() }, then: rest))
    let id = try await shop.submit("http://a.example/")
    while try await shop.engine.job(id, for: Workshop.me).job.progress.completed < start.count {
      try await Task.sleep(for: .milliseconds(2))
    }
    return id
  }

  @Test("bytes before a late header are kept out of the decoder while there is no memory for them")
  func lateHeader() async throws {
    let goesOn = Latch()
    try await Workshop.open({ $0.limits.maxMemory = 64 << 20 }) { shop in
      let memory = shop.engine.loading.loader.urls.ingest.memory
      var all = await memory.reserve(64 << 20)
      let id = try await Self.begin(shop, goesOn)
      try #require(shop.codec.held == 0)
      goesOn.open()
      while memory.waiting < 1 { await Task.yield() }
      #expect(shop.codec.held == 0)
      all = nil
      #expect(try await shop.finished(id).phase == .success && all == nil)
      #expect(shop.codec.decoded.contains(Self.start + Self.rest))
    }
  }

  @Test("bytes before a late header have memory of their own, which is released for others")
  func lateShare() async throws {
    let goesOn = Latch()
    try await Workshop.open({ $0.limits.maxMemory = 64 << 20 }) { shop in
      let memory = shop.engine.loading.loader.urls.ingest.memory
      let id = try await Self.begin(shop, goesOn)
      #expect(shop.codec.held == Self.start.count)
      #expect(memory.reserveNow(64 << 20) == nil, "some of it is in use")
      let other = Task { await memory.reserve(64 << 20) != nil }
      while memory.waiting < 1 { await Task.yield() }
      goesOn.open()
      #expect(await other.value)
      #expect(try await shop.finished(id).phase == .success)
      #expect(shop.codec.decoded.contains(Self.start + Self.rest))
    }
  }

  @Test("images with late headers hold no memory while they wait, so that they can't deadlock")
  func lateHeaders() async throws {
    try await Workshop.open({ $0.limits.maxMemory = 64 << 20 }) { shop in
      let memory = shop.engine.loading.loader.urls.ingest.memory
      // The rest is enough for their bytes, but not for what their headers ask for.
      var most = await memory.reserve(8 << 20)
      let (start, rest) = (Self.start, Self.rest)
      shop.codec.headerComes(after: start.count + rest.count)
      shop.codec.needs(memory: 60 << 20)
      var ids: [JobID] = []
      for number in 0..<3 {
        let url = "http://\(number).example/"
        shop.fetcher.answer(
          url, with: .pieces([start, rest + [UInt8(number)]], total: start.count + rest.count + 1))
        ids.append(try await shop.submit(url))
      }
      while memory.waiting < 3 { await Task.yield() }
      #expect(shop.codec.held == 0)
      most = nil
      for id in ids { #expect(try await shop.finished(id).phase == .success && most == nil) }
    }
  }
}
