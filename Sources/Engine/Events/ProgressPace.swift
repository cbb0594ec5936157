/// How often the progress of a job is delivered: less often if that causes more events.
///
/// Ten events per second for each stream and loading job would be two million events per second with 4,500 streams and
/// 48 jobs.
enum ProgressPace {
  /// Progress events per second, for all streams together.
  static let eventsPerSecond = 10_000.0
  static let shortest = Duration.milliseconds(100)
  static let longest = Duration.seconds(5)

  /// Returns the time between two deliveries of one job's progress.
  /// - Parameter events: the events for one delivery of all loading jobs: streams times jobs.
  static func interval(events: Int) -> Duration {
    min(longest, max(shortest, .seconds(Double(events) / eventsPerSecond)))
  }
}
