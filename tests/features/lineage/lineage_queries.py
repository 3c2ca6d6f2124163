"""Queries with the columns that their columns are derived from, and that decide which rows there are.

The first 22 are those of TPC-H (http://www.tpc.org/tpch, specification 3.0.1, section 2.4), with their validation
parameters. The answers were written by hand.
"""

from dataclasses import dataclass
from typing import Final

TABLES: Final = {
    "region": "r_regionkey bigint, r_name string, r_comment string",
    "nation": "n_nationkey bigint, n_name string, n_regionkey bigint, n_comment string",
    "supplier": "s_suppkey bigint, s_name string, s_address string, s_nationkey bigint, s_phone string, "
    "s_acctbal decimal(15,2), s_comment string",
    "customer": "c_custkey bigint, c_name string, c_address string, c_nationkey bigint, c_phone string, "
    "c_acctbal decimal(15,2), c_mktsegment string, c_comment string",
    "part": "p_partkey bigint, p_name string, p_mfgr string, p_brand string, p_type string, p_size int, "
    "p_container string, p_retailprice decimal(15,2), p_comment string",
    "partsupp": "ps_partkey bigint, ps_suppkey bigint, ps_availqty int, ps_supplycost decimal(15,2), ps_comment string",
    "orders": "o_orderkey bigint, o_custkey bigint, o_orderstatus string, o_totalprice decimal(15,2), "
    "o_orderdate date, o_orderpriority string, o_clerk string, o_shippriority int, o_comment string",
    "lineitem": "l_orderkey bigint, l_partkey bigint, l_suppkey bigint, l_linenumber int, l_quantity decimal(15,2), "
    "l_extendedprice decimal(15,2), l_discount decimal(15,2), l_tax decimal(15,2), l_returnflag string, "
    "l_linestatus string, l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct string, "
    "l_shipmode string, l_comment string",
    "events": "e_id bigint, e_at timestamp, e_user struct<name:string,tags:array<string>>, e_items array<int>, "
    "e_attributes map<string,string>, `e note, #1` string",
}
"""The columns of each table. Names of columns are unique among all tables."""


@dataclass(frozen=True)
class Query:
    """A query and its answer. Names of columns stand between spaces.

    Args:
        sql: The query.
        columns: The columns that each column is derived from, or None if they are not known.
        rows: The columns that decide which rows there are, or None if they are not known.
    """

    sql: str
    columns: dict[str, str | None]
    rows: str | None


QUERIES: Final = {
    "pricing summary": Query(
        """
        select l_returnflag, l_linestatus, sum(l_quantity) as sum_qty, sum(l_extendedprice) as sum_base_price,
          sum(l_extendedprice * (1 - l_discount)) as sum_disc_price,
          sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as sum_charge,
          avg(l_quantity) as avg_qty, avg(l_extendedprice) as avg_price, avg(l_discount) as avg_disc,
          count(*) as count_order
        from lineitem where l_shipdate <= date '1998-12-01' - interval '90' day
        group by l_returnflag, l_linestatus order by l_returnflag, l_linestatus
        """,
        {
            "l_returnflag": "l_returnflag",
            "l_linestatus": "l_linestatus",
            "sum_qty": "l_quantity",
            "sum_base_price": "l_extendedprice",
            "sum_disc_price": "l_extendedprice l_discount",
            "sum_charge": "l_extendedprice l_discount l_tax",
            "avg_qty": "l_quantity",
            "avg_price": "l_extendedprice",
            "avg_disc": "l_discount",
            "count_order": "",
        },
        "l_shipdate l_returnflag l_linestatus",
    ),
    "minimum cost supplier": Query(
        """
        select s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
        from part, supplier, partsupp, nation, region
        where p_partkey = ps_partkey and s_suppkey = ps_suppkey and p_size = 15 and p_type like '%BRASS'
          and s_nationkey = n_nationkey and n_regionkey = r_regionkey and r_name = 'EUROPE'
          and ps_supplycost = (
            select min(ps_supplycost) from partsupp, supplier, nation, region
            where p_partkey = ps_partkey and s_suppkey = ps_suppkey and s_nationkey = n_nationkey
              and n_regionkey = r_regionkey and r_name = 'EUROPE')
        order by s_acctbal desc, n_name, s_name, p_partkey limit 100
        """,
        {
            "s_acctbal": "s_acctbal",
            "s_name": "s_name",
            "n_name": "n_name",
            "p_partkey": "p_partkey",
            "p_mfgr": "p_mfgr",
            "s_address": "s_address",
            "s_phone": "s_phone",
            "s_comment": "s_comment",
        },
        "p_partkey ps_partkey s_suppkey ps_suppkey p_size p_type s_nationkey n_nationkey n_regionkey r_regionkey "
        "r_name ps_supplycost s_acctbal n_name s_name",
    ),
    "shipping priority": Query(
        """
        select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue, o_orderdate, o_shippriority
        from customer, orders, lineitem
        where c_mktsegment = 'BUILDING' and c_custkey = o_custkey and l_orderkey = o_orderkey
          and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15'
        group by l_orderkey, o_orderdate, o_shippriority order by revenue desc, o_orderdate limit 10
        """,
        {
            "l_orderkey": "l_orderkey",
            "revenue": "l_extendedprice l_discount",
            "o_orderdate": "o_orderdate",
            "o_shippriority": "o_shippriority",
        },
        "c_mktsegment c_custkey o_custkey l_orderkey o_orderkey o_orderdate l_shipdate o_shippriority l_extendedprice "
        "l_discount",
    ),
    "order priority checking": Query(
        """
        select o_orderpriority, count(*) as order_count from orders
        where o_orderdate >= date '1993-07-01' and o_orderdate < date '1993-07-01' + interval '3' month
          and exists (select * from lineitem where l_orderkey = o_orderkey and l_commitdate < l_receiptdate)
        group by o_orderpriority order by o_orderpriority
        """,
        {"o_orderpriority": "o_orderpriority", "order_count": ""},
        "o_orderdate l_orderkey o_orderkey l_commitdate l_receiptdate o_orderpriority",
    ),
    "local supplier volume": Query(
        """
        select n_name, sum(l_extendedprice * (1 - l_discount)) as revenue
        from customer, orders, lineitem, supplier, nation, region
        where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey
          and c_nationkey = s_nationkey and s_nationkey = n_nationkey and n_regionkey = r_regionkey
          and r_name = 'ASIA' and o_orderdate >= date '1994-01-01'
          and o_orderdate < date '1994-01-01' + interval '1' year
        group by n_name order by revenue desc
        """,
        {"n_name": "n_name", "revenue": "l_extendedprice l_discount"},
        "c_custkey o_custkey l_orderkey o_orderkey l_suppkey s_suppkey c_nationkey s_nationkey n_nationkey n_regionkey "
        "r_regionkey r_name o_orderdate n_name l_extendedprice l_discount",
    ),
    "forecasting revenue change": Query(
        """
        select sum(l_extendedprice * l_discount) as revenue from lineitem
        where l_shipdate >= date '1994-01-01' and l_shipdate < date '1994-01-01' + interval '1' year
          and l_discount between 0.06 - 0.01 and 0.06 + 0.01 and l_quantity < 24
        """,
        {"revenue": "l_extendedprice l_discount"},
        "l_shipdate l_discount l_quantity",
    ),
    "volume shipping": Query(
        """
        select supp_nation, cust_nation, l_year, sum(volume) as revenue from (
          select n1.n_name as supp_nation, n2.n_name as cust_nation, extract(year from l_shipdate) as l_year,
            l_extendedprice * (1 - l_discount) as volume
          from supplier, lineitem, orders, customer, nation n1, nation n2
          where s_suppkey = l_suppkey and o_orderkey = l_orderkey and c_custkey = o_custkey
            and s_nationkey = n1.n_nationkey and c_nationkey = n2.n_nationkey
            and ((n1.n_name = 'FRANCE' and n2.n_name = 'GERMANY') or (n1.n_name = 'GERMANY' and n2.n_name = 'FRANCE'))
            and l_shipdate between date '1995-01-01' and date '1996-12-31') as shipping
        group by supp_nation, cust_nation, l_year order by supp_nation, cust_nation, l_year
        """,
        {
            "supp_nation": "n_name",
            "cust_nation": "n_name",
            "l_year": "l_shipdate",
            "revenue": "l_extendedprice l_discount",
        },
        "s_suppkey l_suppkey o_orderkey l_orderkey c_custkey o_custkey s_nationkey n_nationkey c_nationkey n_name "
        "l_shipdate",
    ),
    "national market share": Query(
        """
        select o_year, sum(case when nation = 'BRAZIL' then volume else 0 end) / sum(volume) as mkt_share from (
          select extract(year from o_orderdate) as o_year, l_extendedprice * (1 - l_discount) as volume,
            n2.n_name as nation
          from part, supplier, lineitem, orders, customer, nation n1, nation n2, region
          where p_partkey = l_partkey and s_suppkey = l_suppkey and l_orderkey = o_orderkey and o_custkey = c_custkey
            and c_nationkey = n1.n_nationkey and n1.n_regionkey = r_regionkey and r_name = 'AMERICA'
            and s_nationkey = n2.n_nationkey and o_orderdate between date '1995-01-01' and date '1996-12-31'
            and p_type = 'ECONOMY ANODIZED STEEL') as all_nations
        group by o_year order by o_year
        """,
        {"o_year": "o_orderdate", "mkt_share": "n_name l_extendedprice l_discount"},
        "p_partkey l_partkey s_suppkey l_suppkey l_orderkey o_orderkey o_custkey c_custkey c_nationkey n_nationkey "
        "n_regionkey r_regionkey r_name s_nationkey o_orderdate p_type",
    ),
    "product type profit": Query(
        """
        select nation, o_year, sum(amount) as sum_profit from (
          select n_name as nation, extract(year from o_orderdate) as o_year,
            l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity as amount
          from part, supplier, lineitem, partsupp, orders, nation
          where s_suppkey = l_suppkey and ps_suppkey = l_suppkey and ps_partkey = l_partkey and p_partkey = l_partkey
            and o_orderkey = l_orderkey and s_nationkey = n_nationkey and p_name like '%green%') as profit
        group by nation, o_year order by nation, o_year desc
        """,
        {
            "nation": "n_name",
            "o_year": "o_orderdate",
            "sum_profit": "l_extendedprice l_discount ps_supplycost l_quantity",
        },
        "s_suppkey l_suppkey ps_suppkey ps_partkey l_partkey p_partkey o_orderkey l_orderkey s_nationkey n_nationkey "
        "p_name n_name o_orderdate",
    ),
    "returned items": Query(
        """
        select c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) as revenue, c_acctbal, n_name, c_address,
          c_phone, c_comment
        from customer, orders, lineitem, nation
        where c_custkey = o_custkey and l_orderkey = o_orderkey and o_orderdate >= date '1993-10-01'
          and o_orderdate < date '1993-10-01' + interval '3' month and l_returnflag = 'R'
          and c_nationkey = n_nationkey
        group by c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment order by revenue desc limit 20
        """,
        {
            "c_custkey": "c_custkey",
            "c_name": "c_name",
            "revenue": "l_extendedprice l_discount",
            "c_acctbal": "c_acctbal",
            "n_name": "n_name",
            "c_address": "c_address",
            "c_phone": "c_phone",
            "c_comment": "c_comment",
        },
        "c_custkey o_custkey l_orderkey o_orderkey o_orderdate l_returnflag c_nationkey n_nationkey c_name c_acctbal "
        "c_phone n_name c_address c_comment l_extendedprice l_discount",
    ),
    "important stock": Query(
        """
        select ps_partkey, sum(ps_supplycost * ps_availqty) as value from partsupp, supplier, nation
        where ps_suppkey = s_suppkey and s_nationkey = n_nationkey and n_name = 'GERMANY'
        group by ps_partkey
        having sum(ps_supplycost * ps_availqty) > (
          select sum(ps_supplycost * ps_availqty) * 0.0001 from partsupp, supplier, nation
          where ps_suppkey = s_suppkey and s_nationkey = n_nationkey and n_name = 'GERMANY')
        order by value desc
        """,
        {"ps_partkey": "ps_partkey", "value": "ps_supplycost ps_availqty"},
        "ps_suppkey s_suppkey s_nationkey n_nationkey n_name ps_partkey ps_supplycost ps_availqty",
    ),
    "shipping modes": Query(
        """
        select l_shipmode,
          sum(case when o_orderpriority = '1-URGENT' or o_orderpriority = '2-HIGH' then 1 else 0 end)
            as high_line_count,
          sum(case when o_orderpriority <> '1-URGENT' and o_orderpriority <> '2-HIGH' then 1 else 0 end)
            as low_line_count
        from orders, lineitem
        where o_orderkey = l_orderkey and l_shipmode in ('MAIL', 'SHIP') and l_commitdate < l_receiptdate
          and l_shipdate < l_commitdate and l_receiptdate >= date '1994-01-01'
          and l_receiptdate < date '1994-01-01' + interval '1' year
        group by l_shipmode order by l_shipmode
        """,
        {"l_shipmode": "l_shipmode", "high_line_count": "o_orderpriority", "low_line_count": "o_orderpriority"},
        "o_orderkey l_orderkey l_shipmode l_commitdate l_receiptdate l_shipdate",
    ),
    "customer distribution": Query(
        """
        select c_count, count(*) as custdist from (
          select c_custkey, count(o_orderkey) from customer
          left outer join orders on c_custkey = o_custkey and o_comment not like '%special%requests%'
          group by c_custkey) as c_orders (c_custkey, c_count)
        group by c_count order by custdist desc, c_count desc
        """,
        {"c_count": "o_orderkey", "custdist": ""},
        "c_custkey o_custkey o_comment o_orderkey",
    ),
    "promotion effect": Query(
        """
        select 100.00 * sum(case when p_type like 'PROMO%' then l_extendedprice * (1 - l_discount) else 0 end)
          / sum(l_extendedprice * (1 - l_discount)) as promo_revenue
        from lineitem, part
        where l_partkey = p_partkey and l_shipdate >= date '1995-09-01'
          and l_shipdate < date '1995-09-01' + interval '1' month
        """,
        {"promo_revenue": "p_type l_extendedprice l_discount"},
        "l_partkey p_partkey l_shipdate",
    ),
    "top supplier": Query(
        """
        with revenue (supplier_no, total_revenue) as (
          select l_suppkey, sum(l_extendedprice * (1 - l_discount)) from lineitem
          where l_shipdate >= date '1996-01-01' and l_shipdate < date '1996-01-01' + interval '3' month
          group by l_suppkey)
        select s_suppkey, s_name, s_address, s_phone, total_revenue from supplier, revenue
        where s_suppkey = supplier_no and total_revenue = (select max(total_revenue) from revenue)
        order by s_suppkey
        """,
        {
            "s_suppkey": "s_suppkey",
            "s_name": "s_name",
            "s_address": "s_address",
            "s_phone": "s_phone",
            "total_revenue": "l_extendedprice l_discount",
        },
        "l_shipdate l_suppkey s_suppkey l_extendedprice l_discount",
    ),
    "parts and suppliers": Query(
        """
        select p_brand, p_type, p_size, count(distinct ps_suppkey) as supplier_cnt from partsupp, part
        where p_partkey = ps_partkey and p_brand <> 'Brand#45' and p_type not like 'MEDIUM POLISHED%'
          and p_size in (49, 14, 23, 45, 19, 3, 36, 9)
          and ps_suppkey not in (select s_suppkey from supplier where s_comment like '%Customer%Complaints%')
        group by p_brand, p_type, p_size order by supplier_cnt desc, p_brand, p_type, p_size
        """,
        {"p_brand": "p_brand", "p_type": "p_type", "p_size": "p_size", "supplier_cnt": "ps_suppkey"},
        "p_partkey ps_partkey p_brand p_type p_size ps_suppkey s_suppkey s_comment",
    ),
    "small orders": Query(
        """
        select sum(l_extendedprice) / 7.0 as avg_yearly from lineitem, part
        where p_partkey = l_partkey and p_brand = 'Brand#23' and p_container = 'MED BOX'
          and l_quantity < (select 0.2 * avg(l_quantity) from lineitem where l_partkey = p_partkey)
        """,
        {"avg_yearly": "l_extendedprice"},
        "p_partkey l_partkey p_brand p_container l_quantity",
    ),
    "large customers": Query(
        """
        select c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) as quantity
        from customer, orders, lineitem
        where o_orderkey in (select l_orderkey from lineitem group by l_orderkey having sum(l_quantity) > 300)
          and c_custkey = o_custkey and o_orderkey = l_orderkey
        group by c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        order by o_totalprice desc, o_orderdate limit 100
        """,
        {
            "c_name": "c_name",
            "c_custkey": "c_custkey",
            "o_orderkey": "o_orderkey",
            "o_orderdate": "o_orderdate",
            "o_totalprice": "o_totalprice",
            "quantity": "l_quantity",
        },
        "o_orderkey l_orderkey l_quantity c_custkey o_custkey c_name o_orderdate o_totalprice",
    ),
    "discounted revenue": Query(
        """
        select sum(l_extendedprice * (1 - l_discount)) as revenue from lineitem, part
        where (p_partkey = l_partkey and p_brand = 'Brand#12' and p_container in ('SM CASE', 'SM BOX', 'SM PACK')
            and l_quantity >= 1 and l_quantity <= 11 and p_size between 1 and 5 and l_shipmode in ('AIR', 'AIR REG')
            and l_shipinstruct = 'DELIVER IN PERSON')
          or (p_partkey = l_partkey and p_brand = 'Brand#23' and p_container in ('MED BAG', 'MED BOX', 'MED PKG')
            and l_quantity >= 10 and l_quantity <= 20 and p_size between 1 and 10
            and l_shipmode in ('AIR', 'AIR REG') and l_shipinstruct = 'DELIVER IN PERSON')
        """,
        {"revenue": "l_extendedprice l_discount"},
        "p_partkey l_partkey p_brand p_container l_quantity p_size l_shipmode l_shipinstruct",
    ),
    "potential part promotion": Query(
        """
        select s_name, s_address from supplier, nation
        where s_suppkey in (
            select ps_suppkey from partsupp
            where ps_partkey in (select p_partkey from part where p_name like 'forest%')
              and ps_availqty > (
                select 0.5 * sum(l_quantity) from lineitem
                where l_partkey = ps_partkey and l_suppkey = ps_suppkey and l_shipdate >= date '1994-01-01'
                  and l_shipdate < date '1994-01-01' + interval '1' year))
          and s_nationkey = n_nationkey and n_name = 'CANADA'
        order by s_name
        """,
        {"s_name": "s_name", "s_address": "s_address"},
        "s_suppkey ps_suppkey ps_partkey p_partkey p_name ps_availqty l_quantity l_partkey l_suppkey l_shipdate "
        "s_nationkey n_nationkey n_name s_name",
    ),
    "suppliers who kept orders waiting": Query(
        """
        select s_name, count(*) as numwait from supplier, lineitem l1, orders, nation
        where s_suppkey = l1.l_suppkey and o_orderkey = l1.l_orderkey and o_orderstatus = 'F'
          and l1.l_receiptdate > l1.l_commitdate
          and exists (select * from lineitem l2 where l2.l_orderkey = l1.l_orderkey and l2.l_suppkey <> l1.l_suppkey)
          and not exists (
            select * from lineitem l3 where l3.l_orderkey = l1.l_orderkey and l3.l_suppkey <> l1.l_suppkey
              and l3.l_receiptdate > l3.l_commitdate)
          and s_nationkey = n_nationkey and n_name = 'SAUDI ARABIA'
        group by s_name order by numwait desc, s_name limit 100
        """,
        {"s_name": "s_name", "numwait": ""},
        "s_suppkey l_suppkey o_orderkey l_orderkey o_orderstatus l_receiptdate l_commitdate s_nationkey n_nationkey "
        "n_name s_name",
    ),
    "global sales opportunity": Query(
        """
        select cntrycode, count(*) as numcust, sum(c_acctbal) as totacctbal from (
          select substring(c_phone, 1, 2) as cntrycode, c_acctbal from customer
          where substring(c_phone, 1, 2) in ('13', '31', '23', '29', '30', '18', '17')
            and c_acctbal > (
              select avg(c_acctbal) from customer
              where c_acctbal > 0.00 and substring(c_phone, 1, 2) in ('13', '31', '23', '29', '30', '18', '17'))
            and not exists (select * from orders where o_custkey = c_custkey)) as custsale
        group by cntrycode order by cntrycode
        """,
        {"cntrycode": "c_phone", "numcust": "", "totacctbal": "c_acctbal"},
        "c_phone c_acctbal o_custkey c_custkey",
    ),
    "running total": Query(
        """
        select o_orderkey, sum(o_totalprice) over (partition by o_custkey order by o_orderdate) as running,
          row_number() over (order by o_orderdate) as place, lag(o_clerk) over w as previous
        from orders window w as (partition by o_custkey order by o_orderkey)
        """,
        {"o_orderkey": "o_orderkey", "running": "o_totalprice", "place": "", "previous": "o_clerk"},
        "o_custkey o_orderdate o_orderkey",
    ),
    "newest of each": Query(
        """
        select c_custkey, c_name from (
          select c_custkey, c_name, row_number() over (partition by c_custkey order by c_acctbal desc) as place
          from customer) where place = 1
        """,
        {"c_custkey": "c_custkey", "c_name": "c_name"},
        "c_custkey c_acctbal",
    ),
    "union of tables": Query(
        """
        select c_name as name, c_phone as phone, 'customer' as kind from customer where c_acctbal > 0
        union all select s_name, s_phone, 'supplier' from supplier
        """,
        {"name": "c_name s_name", "phone": "c_phone s_phone", "kind": ""},
        "c_acctbal",
    ),
    "union without duplicates": Query(
        "select n_name as name from nation union select r_name from region", {"name": "n_name r_name"}, "n_name r_name"
    ),
    "difference and intersection": Query(
        """
        select c_nationkey as n from customer except select s_nationkey from supplier
        intersect select n_nationkey from nation
        """,
        {"n": "c_nationkey"},
        "c_nationkey s_nationkey n_nationkey",
    ),
    "nested fields": Query(
        """
        select e_user.name as name, e_attributes['k'] as k, struct(e_id, e_at as moment) as pair,
          transform(e_items, x -> x + cast(e_id as int)) as items, size(e_user.tags) as tags
        from events
        """,
        {"name": "e_user", "k": "e_attributes", "pair": "e_id e_at", "items": "e_items e_id", "tags": "e_user"},
        "",
    ),
    "generators": Query(
        """
        select e_id, place, item, tag from events
        lateral view posexplode(e_items) p as place, item lateral view outer explode(e_user.tags) t as tag
        """,
        {"e_id": "e_id", "place": "e_items", "item": "e_items", "tag": "e_user"},
        "e_items e_user",
    ),
    "rollup": Query(
        """
        select o_orderstatus, o_orderpriority, sum(o_totalprice) as total, grouping(o_orderpriority) as is_total
        from orders group by rollup(o_orderstatus, o_orderpriority)
        """,
        {
            "o_orderstatus": "o_orderstatus",
            "o_orderpriority": "o_orderpriority",
            "total": "o_totalprice",
            "is_total": "",
        },
        "o_orderstatus o_orderpriority",
    ),
    "pivot": Query(
        """
        select * from (select o_custkey, o_orderstatus, o_totalprice from orders)
        pivot (sum(o_totalprice) for o_orderstatus in ('O' as open, 'F' as filled))
        """,
        {"o_custkey": "o_custkey", "open": "o_orderstatus o_totalprice", "filled": "o_orderstatus o_totalprice"},
        "o_custkey o_orderstatus",
    ),
    "unpivot": Query(
        """
        select * from (select o_orderkey, o_clerk, o_comment from orders)
        unpivot (value for field in (o_clerk, o_comment))
        """,
        {"o_orderkey": "o_orderkey", "field": "", "value": "o_clerk o_comment"},
        "o_clerk o_comment",
    ),
    "common table expressions": Query(
        """
        with recent as (select * from orders where o_orderdate > date '1997-01-01'),
          totals as (select o_custkey as customer, sum(o_totalprice) as total from recent group by o_custkey)
        select a.total as one, b.total + a.total as both from totals a join totals b on a.customer = b.customer + 1
        """,
        {"one": "o_totalprice", "both": "o_totalprice"},
        "o_orderdate o_custkey",
    ),
    "lateral join": Query(
        """
        select c_name, t.newest, u.own from customer,
          lateral (select max(o_orderdate) as newest from orders where o_custkey = c_custkey) t,
          lateral (select upper(c_comment) as own, c_phone) u
        """,
        {"c_name": "c_name", "newest": "o_orderdate", "own": "c_comment"},
        "o_custkey c_custkey",
    ),
    "subquery as a value": Query(
        """
        select c_name, (select max(o_totalprice) from orders where o_custkey = c_custkey) as highest,
          c_custkey in (select o_custkey from orders where o_orderstatus = 'F') as has_ordered from customer
        """,
        {"c_name": "c_name", "highest": "o_totalprice", "has_ordered": "c_custkey o_custkey"},
        "o_custkey c_custkey o_orderstatus",
    ),
    "texts like code": Query(
        """
        select concat('a, b#1 AS c (', r_name, ')]') as `x, #2 AS y`, `e note, #1` as note,
          'line\\n(, [a#1]' as t
        from region cross join events where r_comment = '(r_name#1 AS x' and r_name <> '['
        """,
        {"x, #2 AS y": "r_name", "note": "e note, #1", "t": ""},
        "r_comment r_name",
    ),
    "a text like a plan": Query(
        "select r_name, 'line\\n+- Project [a#1]' as t from region", {"r_name": None, "t": None}, None
    ),
    "many arguments": Query(
        f"select struct({', '.join(f'l_tax + {n} as t{n}' for n in range(40))}, l_comment) as s from lineitem",
        {"s": "l_tax l_comment"},
        "",
    ),
    "values in the query": Query(
        "select n_name, v.weight, n_nationkey * 2 as doubled from nation join values ('A', 1) v(name, weight) "
        "on n_name = v.name",
        {"n_name": "n_name", "weight": None, "doubled": "n_nationkey"},
        None,
    ),
}
