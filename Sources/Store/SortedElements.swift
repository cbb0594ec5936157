/// Elements in ascending order, each once, in chunks: a change costs the size of a chunk, also while a copy is kept.
struct SortedElements<Element: Comparable & Sendable>: Sendable {
  /// None is empty, and each ends before the next one begins.
  private var chunks: [[Element]] = []
  private static var most: Int { 64 }

  var isEmpty: Bool { chunks.isEmpty }
  var last: Element? { chunks.last?.last }

  /// In ascending order.
  var ascending: some Sequence<Element> { chunks.lazy.joined() }
  /// In descending order.
  var descending: some Sequence<Element> { chunks.reversed().lazy.map { $0.reversed() }.joined() }

  /// Adds an element that is not among them.
  mutating func insert(_ element: Element) {
    guard !chunks.isEmpty else { return chunks = [[element]] }
    let chunk = min(self.chunk(of: element), chunks.count - 1)
    chunks[chunk].insert(element, at: Self.index(of: element, in: chunks[chunk]))
    guard chunks[chunk].count > Self.most else { return }
    let rest = Array(chunks[chunk].suffix(Self.most / 2))
    chunks[chunk].removeLast(rest.count)
    chunks.insert(rest, at: chunk + 1)
  }

  /// Removes an element, if it is among them.
  mutating func remove(_ element: Element) {
    let chunk = self.chunk(of: element)
    guard chunk < chunks.count else { return }
    let index = Self.index(of: element, in: chunks[chunk])
    guard index < chunks[chunk].count, chunks[chunk][index] == element else { return }
    chunks[chunk].remove(at: index)
    if chunks[chunk].isEmpty { chunks.remove(at: chunk) }
  }

  /// The first chunk that may have the element; their number if it is beyond all.
  private func chunk(of element: Element) -> Int {
    Self.first(in: 0..<chunks.count) { chunks[$0][chunks[$0].count - 1] >= element }
  }

  private static func index(of element: Element, in chunk: [Element]) -> Int {
    first(in: 0..<chunk.count) { chunk[$0] >= element }
  }

  /// The first index for which the condition holds, as it does for all that follow; else the end.
  private static func first(in range: Range<Int>, where condition: (Int) -> Bool) -> Int {
    var (low, high) = (range.lowerBound, range.upperBound)
    while low < high {
      let middle = (low + high) / 2
      if condition(middle) { high = middle } else { low = middle + 1 }
    }
    return low
  }
}
