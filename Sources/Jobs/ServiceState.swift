/// Whether the service takes work.
public enum ServiceState: Sendable, Equatable {
  /// Not yet: what an earlier run left is being put back into the queue.
  case starting
  /// It does.
  case ready
  /// No more: it finishes what runs, and stops.
  case draining
}
