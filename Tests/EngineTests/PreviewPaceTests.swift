import Testing

@testable import Engine
@testable import Jobs

@Suite("Previews of one load")
struct PreviewThrottleTests {
  private let start = ContinuousClock.now

  @Test("previews are at least half a second apart, counted from the start")
  func interval() {
    var pace = PreviewThrottle(from: start)
    #expect(pace.due == start + .milliseconds(500))
    pace.recordPreview(at: start + .milliseconds(700), computing: .milliseconds(20))
    #expect(pace.due == start + .milliseconds(1200))
  }

  @Test("previews take at most a ninth of a thread, however long one takes")
  func share() {
    var pace = PreviewThrottle(from: start)
    for work in [1, 100, 700, 5000] as [Int] {
      let begun = pace.due
      let made = begun + .milliseconds(work)
      pace.recordPreview(at: made, computing: .milliseconds(work))
      #expect(pace.due >= begun + .milliseconds(9 * work))
      #expect(pace.due >= made + .milliseconds(500))
    }
  }
}
