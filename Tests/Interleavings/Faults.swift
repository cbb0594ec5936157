import Synchronization

/// Collects the faults of a run.
final class Faults: Sendable {
  private let found = Mutex<[String]>([])

  /// Records a fault; only the first twenty are kept.
  func record(_ fault: @autoclosure () -> String) {
    found.withLock { if $0.count < 20 { $0.append(fault()) } }
  }

  func expect(_ isRight: Bool, _ fault: @autoclosure () -> String) {
    if !isRight { record(fault()) }
  }

  var all: [String] { found.withLock { $0 } }
}

/// A value that is set later.
final class Later<Value: Sendable>: Sendable {
  private let kept = Mutex<Value?>(nil)

  var value: Value? {
    get { kept.withLock { $0 } }
    set { kept.withLock { $0 = newValue } }
  }
}
