import Testing

@testable import Engine
@testable import Jobs

@Suite("The memory of decodes", .timeLimit(.minutes(5)))
struct DecodeMemoryTests {
  @Test("who needs more than is left waits, and is served in order")
  func order() async throws {
    let memory = DecodeMemory(bytes: 100)
    var first = await memory.share(60)
    #expect(first != nil)
    let second = Task { await memory.share(60) != nil }
    while memory.waiting < 1 { await Task.yield() }
    let third = Task { await memory.share(10) != nil }
    while memory.waiting < 2 { await Task.yield() }
    first = nil
    #expect(await second.value)
    #expect(await third.value)
  }

  @Test("who needs little never waits")
  func small() async {
    let memory = DecodeMemory(bytes: 1000)
    let all = await memory.share(1000)
    #expect(await memory.share(3) != nil)
    _ = all
  }

  @Test("who asks for more than there is gets all of it")
  func all() async {
    let memory = DecodeMemory(bytes: 100)
    #expect(await memory.share(1000) != nil)
  }

  @Test("who is cancelled leaves the line and holds up nobody")
  func cancelled() async {
    let memory = DecodeMemory(bytes: 100)
    let first = await memory.share(60)
    let second = Task { await memory.share(60) == nil }
    while memory.waiting < 1 { await Task.yield() }
    let third = Task { await memory.share(10) != nil }
    while memory.waiting < 2 { await Task.yield() }
    second.cancel()
    #expect(await second.value)
    #expect(await third.value)
    _ = first
  }
}
