import API
import CoreMetrics
import Jobs
import Testing

@testable import App

@Suite("The activity of the last 15 minutes")
struct ActivityTests {
  private static func moment(_ seconds: Double) -> Timestamp {
    Timestamp(milliseconds: Int64(seconds * 1000))
  }

  @Test("the activity has a step every five seconds, up to a limit")
  func steps() {
    let recorder = ActivityRecorder(at: Self.moment(0))
    recorder.recordStep(queued: 4, loading: 2, .init(succeeded: 7, failed: 1), at: Self.moment(5))
    recorder.recordStep(
      queued: 0, loading: 1, .init(succeeded: 9, failed: 1), at: Self.moment(10.01))
    let steps = recorder.activity.steps
    #expect(steps.map(\.queued) == [4, 0] && steps.map(\.loading) == [2, 1])
    #expect(steps.map(\.succeeded) == [7, 2] && steps.map(\.failed) == [1, 0])
    #expect(recorder.activity.end == Self.moment(10))
    for step in 3..<500 {
      recorder.recordStep(
        queued: step, loading: 0, .init(succeeded: 9, failed: 1), at: Self.moment(Double(step) * 5))
    }
    #expect(recorder.activity.steps.count == Activity.most)
    #expect(recorder.activity.steps.last?.queued == 499)
  }

  @Test("steps begin at multiples of five seconds, whenever the process started")
  func aligned() {
    let recorder = ActivityRecorder(at: Self.moment(1003.7))
    for (second, ended) in [(1005.02, 1), (1010, 3), (1014.99, 4)] {
      recorder.recordStep(
        queued: 0, loading: 0, .init(succeeded: ended, failed: 0), at: Self.moment(second))
    }
    #expect(recorder.activity.end == Self.moment(1015))
    #expect(recorder.activity.steps.map(\.succeeded) == [1, 2, 1])
    // A timer that fires early does not end another step.
    recorder.recordStep(
      queued: 5, loading: 0, .init(succeeded: 6, failed: 1), at: Self.moment(1015.1))
    #expect(recorder.activity.end == Self.moment(1015))
    #expect(recorder.activity.steps.map(\.succeeded) == [1, 2, 3])
    #expect(recorder.activity.steps.last?.queued == 5 && recorder.activity.steps.last?.failed == 1)
  }

  @Test("steps stay equal after missing measurements and after the clock goes back")
  func gaps() {
    let recorder = ActivityRecorder(at: Self.moment(0))
    recorder.recordStep(queued: 1, loading: 0, .init(succeeded: 1, failed: 0), at: Self.moment(5))
    recorder.recordStep(queued: 2, loading: 0, .init(succeeded: 2, failed: 0), at: Self.moment(20))
    #expect(recorder.activity.steps.map(\.queued) == [1, 0, 0, 2])
    recorder.recordStep(queued: 3, loading: 0, .init(succeeded: 2, failed: 0), at: Self.moment(5))
    #expect(recorder.activity.steps.map(\.queued) == [3])
    #expect(recorder.activity.end == Self.moment(5))
    recorder.recordStep(
      queued: 4, loading: 0, .init(succeeded: 2, failed: 0), at: Self.moment(9e12))
    #expect(recorder.activity.steps.count == Activity.most)
    #expect(recorder.activity.steps.last?.queued == 4)
  }

  @Test("the recorder sums the registry's series by a label")
  func sums() {
    let registry = PrometheusRegistry()
    let counter = { (phase: String, code: String) in
      registry.makeCounter(label: "x_total", dimensions: [("phase", phase), ("code", code)])
    }
    counter("failure", "a").increment(by: 2)
    counter("failure", "b").increment(by: 3)
    counter("success", "").increment(by: 5)
    #expect(registry.sum(of: "x_total", labels: "phase=\"failure\"") == 5)
    #expect(registry.sum(of: "y_total", labels: "phase=\"failure\"") == 0)
  }
}
