import Synchronization
import Testing
import Waiting

@testable import Engine

@Suite("A shared operation that may take long")
struct SharedOperationTests {
  /// Counts operations. The first one lasts until `end` is fulfilled.
  private final class Operations: Sendable {
    let count = Atomic(0)
    let end = OneShot<Void>()

    func perform() async {
      guard count.add(1, ordering: .relaxed).newValue == 1 else { return }
      _ = await end.value()
    }
  }

  @Test("callers share a running operation and wait for it no longer than their limit")
  func shared() async {
    let (look, looks) = (SharedOperation(), Operations())
    for _ in 0..<3 { await look.run(atMost: .milliseconds(10)) { await looks.perform() } }
    #expect(looks.count.load(ordering: .relaxed) == 1)
    looks.end.fulfil(())
    // It ends soon, and the next call starts another one.
    while looks.count.load(ordering: .relaxed) < 2 {
      await look.run(atMost: .seconds(60)) { await looks.perform() }
    }
  }
}
