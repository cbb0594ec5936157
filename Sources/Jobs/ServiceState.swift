/// Whether the service takes work.
public enum ServiceState: Sendable, Equatable {
  /// It is picking up what an earlier run left, or waits for its store to answer.
  case starting
  /// It takes jobs.
  case ready
  /// It takes jobs, but no image can be decoded at the moment.
  case stuck
  /// It finds no room for new jobs. What it has is given out all the same.
  case full
  /// It finishes what is running and takes no more.
  case draining
}
