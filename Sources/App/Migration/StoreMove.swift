internal import Executors
internal import Jobs
internal import SQL

/// Copies a job store and its images into an empty one.
///
/// The rows of each table are copied in pages. The file of an image is copied before its row, so an interrupted move
/// continues when it is started again: rows that the target has are skipped.
struct StoreMove: Sendable {
  /// The source. No service may use it during the move.
  struct Source: Sendable {
    let records: SQLJobStore
    let images: any ImageStore
  }

  /// The target. No service may use it during the move.
  struct Target: Sendable {
    let records: SQLJobStore
    let images: any ImageStore
    let spool: any ImageSpool
    /// Whether the source uses the same image files, so that no bytes have to be copied.
    let isSame: Bool
  }

  enum Failure: Error {
    /// The target can't be used, with the reason.
    case refused(String)
    /// Running the move again continues it.
    case store(StoreError)
  }

  let source: Source
  let target: Target
  /// Called after each page.
  let report: @Sendable (MoveTotals) -> Void
  /// Reads and writes files.
  private let disk = ThreadPool(name: "move", threads: 4)
  /// Rows per page, images copied concurrently, and bytes per read.
  private static let (rows, concurrency, piece) = (64, 8, 1 << 20)

  init(
    from source: Source, to target: Target, report: @escaping @Sendable (MoveTotals) -> Void
  ) {
    (self.source, self.target, self.report) = (source, target, report)
  }

  func run() async throws(Failure) -> MoveTotals {
    let (mark, refusal): (CopyMark, String?)
    do throws(StoreError) {
      mark = try await source.records.markForCopy()
      refusal = try await target.records.beginCopy(of: mark)
    } catch { throw .store(error) }
    if let refusal { throw .refused(refusal) }
    do throws(StoreError) { return try await moveAll(of: mark) } catch { throw .store(error) }
  }

  private func moveAll(of mark: CopyMark) async throws(StoreError) -> MoveTotals {
    // Requeue the jobs that were running when the source's service stopped, as its next start would.
    while try await !source.records.recoverExpired(500).isEmpty {}
    var totals = MoveTotals()
    totals.expected = try await source.records.counts().jobs.values.reduce(0, +)
    for table in SQLJobStore.copiedTables { try await move(table, &totals) }
    try await target.records.endCopy(of: mark)
    return totals
  }

  private func move(_ table: CopiedTable, _ totals: inout MoveTotals) async throws(StoreError) {
    var last: [SQLValue]?
    while let page = try await source.records.page(of: table, after: last, count: Self.rows) {
      last = page.last
      if table.name == "images" { try await moveFiles(of: page, &totals) }
      let new = try await target.records.insert(page)
      totals.count(page, new: new)
      report(totals)
    }
  }
}

// Images.
extension StoreMove {
  private enum Outcome: Sendable {
    case moved
    /// The target has the image already.
    case found
    case missing
  }

  /// Copies the files of images. Rows of missing images are copied too: the service finds that the image is gone when it
  /// is requested.
  private func moveFiles(of page: TablePage, _ totals: inout MoveTotals) async throws(StoreError) {
    var left = page.images[...]
    let known = try await target.records.knownImages(left.map(\.name.digest))
    while !left.isEmpty {
      let some = left.prefix(Self.concurrency)
      left.removeFirst(some.count)
      for (image, outcome) in try await copy(some, known) {
        switch outcome {
        case .moved:
          totals.images.moved += 1
          totals.bytes += image.bytes
        case .found: totals.images.found += 1
        case .missing: totals.missing += 1
        }
      }
    }
  }

  private struct CopyResult: Sendable {
    let image: CopiedImage
    let result: Result<Outcome, StoreError>
  }

  // The tasks return a struct, not a tuple. With -O, Swift 6.3.1 miscompiles a task's closure if it returns a tuple from
  // inside do/catch and an element of the tuple precedes an `await`:
  //
  //     group.addTask { () -> (Name, Result<Value, E>) in
  //       do throws(E) { return (name, .success(try await load())) } catch { return (name, .failure(error)) }
  //     }
  //
  // The element before the `await` (`name`) is lost. The parent reads uninitialized memory, and crashes if the element is
  // a reference. The fault affects task groups and `Task`, typed and untyped throws, -O and -Osize. The code is correct
  // at -Onone, with a struct, with the `await` as the first element or in an earlier `let`, and without the `catch`.
  // ArchitectureTests rejects such tuples in all sources.
  private func copy(
    _ images: ArraySlice<CopiedImage>, _ known: Set<ImageDigest>
  ) async throws(StoreError) -> [(CopiedImage, Outcome)] {
    let results = await withTaskGroup(of: CopyResult.self) { group in
      for image in images {
        group.addTask {
          do throws(StoreError) {
            let outcome = try await copy(image, isKnown: known.contains(image.name.digest))
            return CopyResult(image: image, result: .success(outcome))
          } catch { return CopyResult(image: image, result: .failure(error)) }
        }
      }
      var results: [CopyResult] = []
      for await result in group { results.append(result) }
      return results
    }
    var all: [(CopiedImage, Outcome)] = []
    for result in results { all.append((result.image, try result.result.get())) }
    return all
  }

  /// - Parameter isKnown: Whether the target has the row, but perhaps not the file.
  private func copy(
    _ image: CopiedImage, isKnown: Bool
  ) async throws(StoreError) -> Outcome {
    let digest = image.name.digest
    guard let bytes = try await source.images.open(digest), bytes.count == image.bytes else {
      return .missing
    }
    if image.isEmbedded { return isKnown ? .found : .moved }
    if target.isSame { return .found }
    if isKnown, try await target.images.verify(digest, bytes: image.bytes) { return .found }
    let staged = try await target.spool.stage()
    let found = try await disk.run { () -> Result<ImageDigest, StoreError> in
      do throws(StoreError) {
        for start in stride(from: 0, to: bytes.count, by: Self.piece) {
          try staged.write(bytes.read(at: start, count: min(Self.piece, bytes.count - start)))
        }
        return .success(staged.finish())
      } catch { return .failure(error) }
    }.get()
    guard found == digest else {
      throw .unavailable(detail: "image \(digest.hex) changed while it was read")
    }
    try await target.images.put(staged, as: image.name)
    return .moved
  }
}
