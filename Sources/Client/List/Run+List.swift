internal import Executors

/// Downloads lists through a remote service. The lines are sent to a batch while the list is read, and
/// the images are saved as the results arrive. One thread reads the list, one sends lines, one per
/// batch reads results, and up to `parallel` threads save images.
extension Run {
  func startList(_ lines: ListLines) {
    startCounted(named: "list") { [self] in read(into: lines) }
    startCounted(named: "send") { [self] in send(lines) }
    startAnother()
  }

  private func read(into lines: ListLines) {
    defer { lines.endReading() }
    guard let download = makeDownload() else { return }
    // Before any work is done.
    do throws(EndOfRun) { try download.ping() } catch { return endRun(Ending(error)) }
    while !stop.isRaised {
      let item: Sources.Item?
      do { item = try sources.next() } catch { return endRun(.mistake(error.text)) }
      guard let item else { return }
      switch item.line {
      case .unusable(let beginning, let reason):
        report(item.index, .failed(code: "invalid_url", detail: reason), url: beginning)
      case .text(let url):
        if let outcome = naming.outcomeWithoutRequest(of: url, index: item.index) {
          report(item.index, outcome, url: url)
        } else {
          lines.add(item)
        }
      }
    }
  }

  private func send(_ lines: ListLines) {
    defer { lines.endSending() }
    guard let download = makeDownload() else { return }
    var batch: ListBatch?
    while let items = lines.nextToSend() {
      whileBusy {
        do throws(EndOfRun) { batch = try send(items, to: batch, of: lines, download) } catch {
          endRun(Ending(error))
        }
      }
    }
    guard let batch, !stop.isRaised else { return }
    whileBusy {
      do throws(EndOfRun) { try download.close(batch: batch.id) } catch { endRun(Ending(error)) }
    }
  }

  /// Sends lines to the current batch. Starts another batch if it accepts no more, because it is full
  /// or because the service closed it after a long pause of the list.
  private func send(
    _ items: [Sources.Item], to former: ListBatch?, of lines: ListLines, _ download: Download
  ) throws(EndOfRun) -> ListBatch {
    var batch: ListBatch
    if let former { batch = former } else { batch = try begin(1, lines, download) }
    var rest = items[...]
    while true {
      lines.recordSent(rest, from: batch.sent + 1, of: batch.number)
      let texts = rest.map { settings.options.line(of: $0.url) }
      let answer = try download.send(texts, to: batch.id, after: batch.sent)
      let taken = max(0, min(rest.count, answer.received - batch.sent))
      batch.sent += taken
      rest = rest.dropFirst(taken)
      if rest.isEmpty { return batch }
      lines.removeUnsent(rest.count, from: batch.sent + 1, of: batch.number)
      guard answer.state != .cancelled else {
        throw .mistake("the batch was cancelled at \(settings.address.base)")
      }
      guard batch.sent > 0 else { throw .mistake("\(settings.address.base) accepts no lines") }
      if answer.state == .receiving { try download.close(batch: batch.id) }
      batch = try begin(batch.number + 1, lines, download)
    }
  }

  /// Creates a batch and starts the threads that read its results and show its jobs.
  private func begin(
    _ number: Int, _ lines: ListLines, _ download: Download
  ) throws(EndOfRun) -> ListBatch {
    let answer = try download.beginBatch(named: "imagefetch get")
    let batch = ListBatch(id: answer.id, number: number, sent: 0)
    lines.countSource(true)
    startCounted(named: "results", isBusy: true) { [self] in
      follow(batch, lines)
      lines.countSource(false)
    }
    // Not counted: the run need not wait for this thread.
    startThread(named: "watch") { [self] in watch(batch, lines) }
    return batch
  }

  /// Reads the results until all lines have ended, also after broken connections. If the run ends
  /// earlier, cancels the batch.
  private func follow(_ batch: ListBatch, _ lines: ListLines) {
    guard let download = makeDownload() else { return }
    var next = 1
    do throws(EndOfRun) {
      while true {
        let isWhole = try download.results(of: batch.id, from: next) { result in
          next = max(next, result.line + 1)
          lines.recordResult(result, of: batch.number)
        }
        guard let answer = try download.fetchBatch(batch.id) else {
          throw .mistake("the batch has been deleted at \(settings.address.base)")
        }
        // More lines may have been received since the last request. A finished or cancelled batch
        // receives no more.
        let isOver = answer.state == .finished || answer.state == .cancelled
        let unended = lines.firstUnended(of: batch.number, through: answer.received)
        if isWhole, isOver, next > answer.received || unended == nil {
          return lines.abandon(batch.number, through: answer.received)
        }
        try download.pauseBriefly()
      }
    } catch {
      endRun(Ending(error))
    }
    download.cancel(batch: batch.id)
  }

  /// Shows loading jobs if there is a progress display. If one job delays the results of the lines
  /// after it, finds out which of these have ended.
  private func watch(_ batch: ListBatch, _ lines: ListLines) {
    guard let download = makeDownload() else { return }
    var (unended, looks) = (lines.firstUnended(of: batch.number), 0)
    do throws(EndOfRun) {
      while !lines.isFinished {
        try download.pauseBriefly()
        if let display { try show(batch, lines, download, on: display) }
        let first = lines.firstUnended(of: batch.number)
        looks = first == unended ? looks + 1 : 0
        unended = first
        // Each search finds the jobs that have ended since the last one, so its cost is small.
        if first != nil, looks >= 2 { try findFinished(in: batch, lines, download) }
      }
    } catch {
      // Only the stop flag ends this loop. Other errors are reported by the threads that need the
      // responses.
    }
  }

  private func show(
    _ batch: ListBatch, _ lines: ListLines, _ download: Download, on board: ProgressDisplay
  ) throws(EndOfRun) {
    // The service lists the newest job first, but the bars are in the order of the lines.
    for entry in try download.jobs("phase=loading")?.jobs.reversed() ?? [] {
      guard let place = entry.place, place.id == batch.id,
        let item = lines.item(at: .init(batch: batch.number, line: place.line))
      else { continue }
      board.begin(item.index, name: FileName.shown(of: item.url))
      board.show(item.index, .loading, entry.job.progress)
    }
  }

  /// Finds lines that have ended after one that has not. Reads pages, newest first, until a page has no
  /// unknown result.
  private func findFinished(
    in batch: ListBatch, _ lines: ListLines, _ download: Download
  ) throws(EndOfRun) {
    let query = "batch=\(batch.id)&phase=success&phase=failure&phase=cancelled"
    var cursor: String?
    var isNew = true
    while isNew {
      let page = try download.jobs(query + (cursor.map { "&cursor=\($0)" } ?? ""))
      isNew = false
      for entry in page?.jobs ?? [] {
        guard let place = entry.place,
          lines.item(at: .init(batch: batch.number, line: place.line)) != nil
        else { continue }
        isNew = true
        lines.recordResult(
          ResultLine(line: place.line, job: entry.job, error: nil), of: batch.number)
      }
      cursor = page?.next_cursor
      if cursor == nil { return }
    }
  }

  /// Saves the images of ended lines, one after the other.
  func save(_ lines: ListLines) {
    let current = CurrentLine()
    guard
      let download = makeDownload(
        display.map { board in { [current] in board.show(current.index, $0, $1) } })
    else { return }
    while let ended = lines.nextEnded() {
      startAnother()
      whileBusy {
        let (url, index) = (ended.item.url, ended.item.index)
        current.index = index
        display?.begin(index, name: FileName.shown(of: url))
        do throws(EndOfRun) {
          report(index, try download.save(ended.result, of: url, index: index), url: url)
        } catch {
          display?.remove(index)
          endRun(Ending(error))
        }
      }
    }
  }
}

/// A batch that receives lines of a list.
private struct ListBatch {
  let id: String
  /// The number of the batch in the run, from 1 on.
  let number: Int
  /// The number of lines that it has received.
  var sent: Int
}

/// The line that a thread is saving.
private final class CurrentLine {
  var index = 0
}

extension Sources.Item {
  var url: String {
    switch line {
    case .text(let text), .unusable(let text, _): text
    }
  }
}
