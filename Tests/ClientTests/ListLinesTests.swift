import Foundation
import Synchronization
import Testing

@testable import Client

@Suite("The lines of lists in a run")
struct ListLinesTests {
  private static func item(_ index: Int) -> Sources.Item {
    Sources.Item(line: .text("http://a/\(index)"), index: index)
  }

  private static func ended(_ line: Int) -> ResultLine {
    let image = JobResponse.Image(format: "png", width: 1, height: 1, bytes: 9, frames: nil)
    return ResultLine(
      line: line, job: JobResponse(id: "a", phase: .success, image: image, error: nil), error: nil)
  }

  @Test("a line's result is returned once, and a line that the service lost fails")
  func once() {
    let lines = ListLines(stop: CancellationFlag())
    for index in 1...4 { lines.add(Self.item(index)) }
    lines.endReading()
    #expect(lines.nextToSend()?.map(\.index) == [1, 2, 3, 4])
    #expect(lines.nextToSend() == nil)
    lines.recordSent((1...4).map(Self.item), from: 11, of: 1)
    // The batch accepted three lines; the fourth goes to the next batch.
    lines.removeUnsent(1, from: 14, of: 1)
    lines.recordSent([Self.item(4)], from: 1, of: 2)
    lines.countSource(true)
    lines.endSending()
    #expect(lines.firstUnended(of: 1) == 11)
    lines.recordResult(Self.ended(12), of: 1)
    lines.recordResult(Self.ended(12), of: 1)
    lines.recordResult(Self.ended(14), of: 1)
    lines.recordResult(Self.ended(1), of: 2)
    lines.abandon(1, through: 12)
    lines.countSource(false)
    let told = (0..<3).compactMap { _ in lines.nextEnded() }
    #expect(told.map(\.item.index) == [2, 4, 1])
    #expect(told.map { $0.result.error?.code } == [nil, nil, "not_found"])
    #expect(lines.nextEnded() == nil)
    #expect(lines.isFinished && lines.firstUnended(of: 1) == 13)
  }

  @Test("the number of lines is limited, and the stop flag ends every wait")
  func bounded() async {
    let stop = CancellationFlag()
    let lines = ListLines(stop: stop)
    let added = Counter()
    await withTaskGroup { group in
      group.addTask { [lines] in
        await onThread {
          for index in 0..<ListLines.maxInFlight + 10 where !stop.isRaised {
            lines.add(Self.item(index))
            added.count.withLock { $0 += 1 }
          }
        }
      }
      while added.now < ListLines.maxInFlight { await Task.yield() }
      #expect(lines.nextToSend()?.count == 1_000)
      lines.recordSent((0..<1_000).map(Self.item), from: 1, of: 1)
      lines.recordResult(Self.ended(1), of: 1)
      #expect(added.now == ListLines.maxInFlight)
      #expect(lines.nextEnded()?.item.index == 0)
      while added.now < ListLines.maxInFlight + 1 { await Task.yield() }
      stop.raise()
      await group.waitForAll()
    }
    #expect(lines.nextEnded() == nil && lines.nextToSend() == nil)
  }

  @Test(
    "results are lines of JSON; other lines are skipped",
    arguments: [
      "", "{", "[]", #"{"line":1}"#, #"{"line":1,"phase":"success","job":"../x"}"#,
      #"{"line":1,"phase":"success","job":null}"#, #"{"line":1,"phase":"lost","job":"a"}"#,
      #"{"line":99999999999999999999,"phase":"rejected"}"#,
      #"{"line":9223372036854775807,"phase":"rejected"}"#, #"{"line":0,"phase":"rejected"}"#,
    ])
  func hostile(text: String) {
    #expect(ResultLine(Array(text.utf8)[...]) == nil)
  }

  /// Runs blocking work on its own thread.
  private func onThread(_ body: @escaping @Sendable () -> Void) async {
    await withCheckedContinuation { continuation in
      Thread.detachNewThread {
        body()
        continuation.resume()
      }
    }
  }
}

private final class Counter: Sendable {
  let count = Mutex(0)
  var now: Int { count.withLock { $0 } }
}
