import Synchronization
import Testing
import Waiting

@testable import Engine

@Suite("A look that may take long")
struct SharedLookTests {
  /// The first of which takes until it is ended.
  private final class Looks: Sendable {
    let count = Atomic(0)
    let end = OneShot<Void>()

    func take() async {
      guard count.add(1, ordering: .relaxed).newValue == 1 else { return }
      _ = await end.value()
    }
  }

  @Test("is one for all who ask meanwhile, and waited for no longer than asked")
  func shared() async {
    let (look, looks) = (SharedLook(), Looks())
    for _ in 0..<3 { await look.run(atMost: .milliseconds(10)) { await looks.take() } }
    #expect(looks.count.load(ordering: .relaxed) == 1)
    looks.end.fulfil(())
    // It is over soon, and another one begins.
    while looks.count.load(ordering: .relaxed) < 2 {
      await look.run(atMost: .seconds(60)) { await looks.take() }
    }
  }
}
